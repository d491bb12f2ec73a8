// A run-time `if` gives build-time values.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let scale = if n > 3 { 1.0 } else { 2.0 };
    let _ = scale;
}

fn main() {}
