// What a type parameter stands for is not said.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k<T>(x: View<T, 1>) {}

fn main() {}
