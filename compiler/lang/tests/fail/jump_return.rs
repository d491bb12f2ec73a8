// `return` under a run-time condition.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(n: Scalar<i32>, c: ViewMut<i32, 1>) {
    if n == 0 {
        return;
    }
    c.set(0, n);
}

fn main() {}
