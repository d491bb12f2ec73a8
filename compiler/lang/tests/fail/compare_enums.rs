// Enums compare by reference.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[derive(PartialEq)]
enum Mode {
    A,
    B,
}
#[kernel]
fn k(n: Scalar<i32>) {
    let mode = Mode::A;
    if mode == Mode::B {
        print("b", n);
    }
}

fn main() {}
