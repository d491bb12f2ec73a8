// A build-time integer changes in a run-time branch.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let mut count = 0;
    if n > 3 {
        count += 1;
    }
}

fn main() {}
