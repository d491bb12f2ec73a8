// A sum over bool is a `count`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>) {
    let x = a.load::<(C<8>,)>(0) > 0.0;
    let _ = x.sum::<0>();
}

fn main() {}
