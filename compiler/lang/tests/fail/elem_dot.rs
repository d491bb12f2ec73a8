// There is no `dot` of i32.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(a: View<i32, 2>) {
    let x = a.load::<(C<8>, C<8>)>((0, 0));
    let _ = dot(x, x, zeros::<i32, (C<8>, C<8>)>());
}

fn main() {}
