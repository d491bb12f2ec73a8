// A tile of bools has many answers.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>) {
    let mut x = a.load::<(C<8>,)>(0);
    while x > 0.0 {
        x = x - 1.0;
    }
}

fn main() {}
