// A struct of tiles needs `#[derive(Carry)]`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

struct State {
    sum: Scalar<i32>,
}
impl State {
    fn add(&mut self, x: Scalar<i32>) {
        self.sum += x;
    }
}
#[kernel]
fn k(n: Scalar<i32>) {
    let mut s = State { sum: n };
    for i in 0..n {
        s.add(i);
    }
}

fn main() {}
