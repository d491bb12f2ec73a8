//! Whole kernels: built and verified.
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel(configs = [{ T: f32, N: 16 }, { T: bf16, N: 1024 }])]
pub fn softmax<T: Float, N: Dim>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let row = program_id(0);
    let t = x.load::<(One, N)>((row, 0)).cast::<f32>();
    let t = select(iota::<N>().expand::<0>() < x.dim::<1>(), t, f32::NEG_INFINITY);
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), (e / e.sum::<1>()).cast());
}

#[kernel(configs = [{ T: f32, BM: 128, BN: 128, BK: 64 }])]
pub fn matmul<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (pm, pn) = grouped::<BM, BN>(program_id(0), &c, 8);
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        acc = dot(a.load::<(BM, BK)>((pm, k)), b.load::<(BK, BN)>((k, pn)), acc);
    }
    c.store((pm, pn), acc.cast());
}

#[test]
fn prints() {
    println!("{}", softmax::ir::<f32>().dims(16).build().unwrap());
    println!("{}", matmul::ir::<f32>().dims(16, 32, 8).build().unwrap());
}
