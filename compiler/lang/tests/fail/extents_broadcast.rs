// A tile cannot be repeated to this shape.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let x = a.load::<(C<4>, One)>((0, 0));
    let _ = x.broadcast::<(C<8>, C<2>)>();
}

fn main() {}
