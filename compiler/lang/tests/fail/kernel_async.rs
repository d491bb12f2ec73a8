// A kernel is not async.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
async fn k(n: Scalar<i32>) {
    let _ = n;
}

fn main() {}
