// The accumulator has another shape.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>, b: View<f32, 2>) {
    let acc = zeros::<f32, (C<8>, C<8>)>();
    let _ = dot(a.load::<(C<8>, C<4>)>((0, 0)), b.load::<(C<4>, C<16>)>((0, 0)), acc);
}

fn main() {}
