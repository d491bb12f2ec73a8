// A helper with control flow needs `#[func]`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

fn relu(x: Scalar<f32>) -> Scalar<f32> {
    if x > 0.0 { x } else { scalar(0.0) }
}

fn main() {}
