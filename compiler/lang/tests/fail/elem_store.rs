// The stored tile has another element type.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, c: ViewMut<bf16, 1>) {
    c.store(0, a.load::<(C<8>,)>(0));
}

fn main() {}
