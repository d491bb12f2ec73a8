// A tile of rank 1 is stored in a view of rank 2.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>, c: ViewMut<f32, 2>) {
    c.store((0, 0), a.load::<(C<8>,)>(0));
}

fn main() {}
