// A configuration lacks a dim.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

#[kernel(configs = [{ T: f32 }])]
fn k<T: Float, BM: Dim>(x: View<T, 1>, y: ViewMut<T, 1>) {
    y.store(0, x.load::<(BM,)>(0));
}

fn main() {}
