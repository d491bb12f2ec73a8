// The pad value does not fit.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<i32, 1>) {
    let _ = a.load_padded::<(C<8>,)>(0, 0.5);
}

fn main() {}
