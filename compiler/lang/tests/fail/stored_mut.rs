// A stored `&mut` hides what a loop changes.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    let mut sum = n;
    let s = &mut sum;
    for i in 0..n {
        *s += i;
    }
}

fn main() {}
