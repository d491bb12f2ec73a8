// A kernel returns nothing.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) -> Scalar<i32> {
    n + 1
}

fn main() {}
