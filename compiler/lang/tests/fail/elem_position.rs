// A tile position is i32.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, n: Scalar<i64>) {
    let _ = a.load::<(C<8>,)>((n,));
}

fn main() {}
