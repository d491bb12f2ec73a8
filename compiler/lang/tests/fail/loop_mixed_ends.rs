// A loop from a run-time start to a build-time end.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    for _ in n..8usize {}
}

fn main() {}
