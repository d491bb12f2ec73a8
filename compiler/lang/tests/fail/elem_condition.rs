// An integer is no condition.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    if n {
        print("n", n);
    }
}

fn main() {}
