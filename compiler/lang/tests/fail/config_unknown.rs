// A configuration names no parameter of the kernel.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel(configs = [{ T: f32, BM: 8, BX: 4 }])]
fn k<T: Float, BM: Dim>(x: View<T, 1>, y: ViewMut<T, 1>) {
    y.store(0, x.load::<(BM,)>(0));
}

fn main() {}
