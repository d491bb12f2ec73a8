// A variable changes its shape in a loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>, n: Scalar<i32>) {
    let mut x = a.load::<(One, C<8>)>((0, 0));
    for i in 0..n {
        x = x + a.load::<(C<4>, C<8>)>((i, 0));
    }
}

fn main() {}
