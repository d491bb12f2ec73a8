// A shape is made of extents.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let _ = a.load::<(C<8>, usize)>((0, 0));
}

fn main() {}
