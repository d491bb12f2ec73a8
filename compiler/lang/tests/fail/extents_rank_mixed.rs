// A vector beside a matrix needs `expand`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k<BM: Dim, BN: Dim>(a: View<f32, 2>, w: View<f32, 1>) {
    let x = a.load::<(BM, BN)>((0, 0));
    let _ = x * w.load::<(BN,)>(0);
}

fn main() {}
