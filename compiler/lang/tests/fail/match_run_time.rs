// `match` on a run-time value.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>) {
    match n {
        0 => {}
        _ => {}
    }
}

fn main() {}
