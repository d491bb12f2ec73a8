// Atomic arithmetic on elements of 8 bits.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel]
fn k(y: ViewMut<i8, 1>) {
    y.atomic_add(iota::<C<4>>(), 1, MemOrder::Relaxed);
}

fn main() {}
