// The right operand should be transposed: found with no number known.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let x = a.load::<(BM, BK)>((0, 0));
    let y = b.load::<(BN, BK)>((0, 0));
    c.store((0, 0), dot(x, y, zeros::<f32, (BM, BN)>()).cast());
}

fn main() {}
