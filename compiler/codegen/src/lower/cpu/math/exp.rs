//! exp and exp2. Cody and Waite's reduction, a polynomial of degree 5 (Cephes' coefficients), scaling by 2^n in two
//! steps so that subnormal results round right and too large ones overflow.

use super::{
    super::build::{Build, FCmp, V},
    poly,
};

/// x within lo..=hi; NaN stays.
fn clamp<'c>(b: &Build<'c>, x: V<'c>, lo: f64, hi: f64) -> V<'c> {
    let (l, h) = (b.float_like(x, lo), b.float_like(x, hi));
    let x = b.select(b.cmpf(FCmp::Olt, x, l), l, x);
    b.select(b.cmpf(FCmp::Ogt, x, h), h, x)
}

/// p · 2^n for an integral float n in −160..=160.
fn scale<'c>(b: &Build<'c>, p: V<'c>, n: V<'c>) -> V<'c> {
    // A NaN's n is any integer, and p is NaN.
    let n = b.fptosi(n, b.i32());
    let half = b.shrs(n, b.int_like(n, 1));
    let power = |n: V<'c>| b.bitcast(b.shl_c(b.add_c(n, 127), 23), b.f32());
    b.mulf(b.mulf(p, power(half)), power(b.sub(n, half)))
}

/// e to the x.
pub fn exp<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -104.0, 89.0);
    let n = b.round_even(b.mulf(x, b.float_like(x, std::f64::consts::LOG2_E)));
    let c = |v: f64| b.float_like(x, v);
    let f = b.fma(n, c(-0.693359375), x);
    let f = b.fma(n, c(2.12194440e-4), f);
    let p = poly(b, f, &[1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1]);
    let p = b.fma(b.mulf(f, f), p, b.addf(f, c(1.0)));
    scale(b, p, n)
}

/// 2 to the x.
pub fn exp2<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -150.0, 129.0);
    let n = b.round_even(x);
    let f = b.subf(x, n);
    let p = poly(b, f, &[1.535336188e-4, 1.339887440e-3, 9.618437357e-3, 5.550332471e-2, 2.402264791e-1, 6.931472028e-1]);
    scale(b, b.fma(p, f, b.float_like(x, 1.0)), n)
}
