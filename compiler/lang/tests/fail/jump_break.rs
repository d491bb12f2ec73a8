// `break` out of a run-time loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    for i in 0..n {
        if i == 3 {
            break;
        }
    }
}

fn main() {}
