// A field that is no run-time value.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[derive(Carry)]
struct S {
    sum: Scalar<i32>,
    name: String,
}

fn main() {}
