// A kernel's name hides a built-in type.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn f32(n: Scalar<i32>) {
    let _ = n;
}

fn main() {}
