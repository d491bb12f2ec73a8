// Views are passed by value.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(x: &View<f32, 1>) {
    let _ = x;
}

fn main() {}
