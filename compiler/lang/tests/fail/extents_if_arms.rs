// The arms of an `if` have different shapes.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, n: Scalar<i32>) {
    let x = if n > 2 { a.load::<(C<8>,)>(0) } else { a.load::<(C<4>,)>(0) };
    let _ = x;
}

fn main() {}
