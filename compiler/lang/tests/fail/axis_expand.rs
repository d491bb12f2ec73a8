// A shape has at most 4 axes.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 4>) {
    let x = a.load::<(C<2>, C<2>, C<2>, C<2>)>((0, 0, 0, 0));
    let _ = x.expand::<0>();
}

fn main() {}
