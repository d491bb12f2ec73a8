// A build-time value is no kernel parameter.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: usize, y: ViewMut<f32, 1>) {
    y.set(n, 1.0);
}

fn main() {}
