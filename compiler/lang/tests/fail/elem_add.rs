// bf16 and f32 do not mix.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<bf16, 1>, b: View<f32, 1>) {
    let x = a.load::<(C<8>,)>(0);
    let y = b.load::<(C<8>,)>(0);
    let _ = x + y;
}

fn main() {}
