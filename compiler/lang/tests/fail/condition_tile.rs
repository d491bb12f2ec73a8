// A tile of bools has many answers.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, c: ViewMut<f32, 1>) {
    let x = a.load::<(C<8>,)>(0);
    let y = if x > 0.0 { x } else { -x };
    c.store(0, y);
}

fn main() {}
