// A loop counts in integers.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(f: Scalar<f32>) {
    for _ in 0..f {}
}

fn main() {}
