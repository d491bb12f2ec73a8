// Compared tiles do not fit.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>) {
    let x = a.load::<(C<8>,)>(0);
    let _ = x < a.load::<(C<4>,)>(0);
}

fn main() {}
