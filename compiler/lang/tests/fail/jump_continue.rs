// `continue` in a run-time loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>, flag: Scalar<bool>) {
    for _ in 0..4 {
        while flag {
            continue;
        }
    }
}

fn main() {}
