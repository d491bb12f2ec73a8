// `Carry` is for structs.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[derive(Carry)]
enum E {
    A(Scalar<i32>),
}

fn main() {}
