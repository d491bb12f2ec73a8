// Two tiles of other extents are added.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 2>, c: ViewMut<f32, 2>) {
    let x = a.load::<(C<64>, C<32>)>((0, 0));
    let y = a.load::<(C<64>, C<16>)>((0, 0));
    c.store((0, 0), (x + y) * 2.0);
}

fn main() {}
