// The other extents of `cat` differ.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let x = a.load::<(C<4>, C<8>)>((0, 0));
    let _ = x.cat::<0, _>(a.load::<(C<4>, C<16>)>((0, 0)));
}

fn main() {}
