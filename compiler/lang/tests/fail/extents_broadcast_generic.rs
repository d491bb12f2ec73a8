// A row maximum is transposed by mistake.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k<BM: Dim, BN: Dim>(a: View<f32, 2>, c: ViewMut<f32, 2>) {
    let x = a.load::<(BM, BN)>((0, 0));
    let m = x.max::<1>().t();
    c.store((0, 0), x - m);
}

fn main() {}
