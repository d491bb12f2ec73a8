// A host array indexed by a run-time value.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let table = [1, 2, 3];
    let _ = table[n];
}

fn main() {}
