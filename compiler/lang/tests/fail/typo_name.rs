// A misspelt variable.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, n: Scalar<i32>) {
    let mut acc = zeros::<f32, (C<8>,)>();
    for i in 0..n {
        acc += acc * a.load(i) + ac;
    }
}

fn main() {}
