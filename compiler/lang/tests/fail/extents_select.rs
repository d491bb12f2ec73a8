// The arms of a select do not fit the mask.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>) {
    let x = a.load::<(C<8>, C<4>)>((0, 0));
    let y = a.load::<(C<4>, C<8>)>((0, 0));
    let z = select(x > 0.0, x, y);
    let _ = z.exp();
}

fn main() {}
