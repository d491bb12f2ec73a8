// A kernel has no `self`.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

struct S;
impl S {
    #[kernel]
    fn k(&self, n: Scalar<i32>) {
        let _ = n;
    }
}

fn main() {}
