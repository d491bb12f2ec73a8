// A float tile takes a float literal.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>) {
    let y = a.load::<(C<8>,)>(0);
    let _ = y * 2;
}

fn main() {}
