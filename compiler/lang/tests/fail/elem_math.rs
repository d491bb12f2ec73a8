// Integers have no `exp`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let _ = n.exp();
}

fn main() {}
