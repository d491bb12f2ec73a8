// A misspelt method.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<f32, 1>) {
    let _ = a.load::<(C<8>,)>(0).expp();
}

fn main() {}
