// A position has one index per axis.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let x = a.load::<(C<8>, C<8>)>((0,));
    let _ = x;
}

fn main() {}
