// A build-time list changes in a run-time loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let mut names = vec!["a"];
    for _ in 0..n {
        names.push("b");
    }
}

fn main() {}
