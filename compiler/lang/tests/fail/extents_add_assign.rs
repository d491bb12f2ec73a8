// Another extent is added in place.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let mut x = a.load::<(C<64>, C<32>)>((0, 0));
    x += a.load::<(C<64>, C<16>)>((0, 0));
}

fn main() {}
