// The output is not mutable.
#![allow(unused, dead_code)]
extern crate tegula_lang as tegula;
use tegula::prelude::*;

use tegula::launch::ArgData;
struct Tensor<T>(Vec<T>);
impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for &'a Tensor<T> {
    fn arg(self) -> ArgData<'a> {
        unimplemented!()
    }
}
impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for &'a mut Tensor<T> {
    fn arg(self) -> ArgData<'a> {
        unimplemented!()
    }
}
#[kernel]
fn k<T: Float, BM: Dim>(a: View<T, 1>, n: Scalar<i32>, c: ViewMut<T, 1>) {
    c.store(0, a.load::<(BM,)>(n));
}
fn go(a: &Tensor<f32>, c: &Tensor<f32>) {
    let _ = k::launch(a, 1, c).dims(8);
}

fn main() {}
