// Indices are one per axis.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let _ = a.gather(iota::<C<8>>());
}

fn main() {}
