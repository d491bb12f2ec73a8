// `break` out of two loops, one of them run-time.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    'rows: for _ in 0..4 {
        for _ in 0..n {
            break 'rows;
        }
    }
}

fn main() {}
