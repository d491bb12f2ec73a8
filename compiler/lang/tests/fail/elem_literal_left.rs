// An integer tile takes an integer literal.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<i32, 1>) {
    let y = a.load::<(C<8>,)>(0);
    let _ = 2.0 * y;
}

fn main() {}
