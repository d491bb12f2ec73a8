// A closure changes a variable from outside.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let mut sum = n;
    let mut add = |x: Scalar<i32>| sum += x;
    add(n);
}

fn main() {}
