// A build-time float changes in a run-time loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, n: Scalar<i32>) {
    let mut sum = 0.0;
    for i in 0..n {
        sum = sum + a.at(i);
    }
}

fn main() {}
