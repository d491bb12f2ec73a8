// `t` is for two axes.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 3>) {
    let x = a.load::<(C<2>, C<2>, C<2>)>((0, 0, 0));
    let _ = x.t();
}

fn main() {}
