// What an iterator over `&mut` gives is handed on in a loop.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

fn bump(x: &mut Scalar<i32>, k: Scalar<i32>) {
    *x += k;
}
#[kernel]
fn k(n: Scalar<i32>) {
    let mut v = [n, n];
    for (i, x) in v.iter_mut().enumerate() {
        for k in 0..n {
            bump(x, k);
        }
    }
}

fn main() {}
