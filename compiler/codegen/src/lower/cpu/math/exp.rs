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

/// A float rounded to an integer two ways: as a float, and as an i32 in the low bits of `raw`, whose others are known.
struct Rounded<'c> {
    n: V<'c>,
    raw: V<'c>,
}

/// 1.5 · 2^23: adding it to a float below 2^22 leaves the nearest integer in the low bits.
const MAGIC: f64 = 12582912.0;

/// x · c rounded to the nearest integer.
fn round<'c>(b: &Build<'c>, x: V<'c>, c: f64) -> Rounded<'c> {
    let magic = b.float_like(x, MAGIC);
    let shifted = b.fma(x, b.float_like(x, c), magic);
    Rounded { n: b.subf(shifted, magic), raw: b.bitcast(shifted, b.i32()) }
}

/// p · 2^n, for n in −160..=160; p is in ½..2, or NaN.
fn scale<'c>(b: &Build<'c>, avx512: bool, p: V<'c>, by: &Rounded<'c>) -> V<'c> {
    if avx512 && b.lanes(p) == 16 {
        // One rounding, as below: the first of the two factors is applied exactly there.
        let all = b.c(b.i16(), -1);
        let args = [p, by.n, p, all, b.c32(4)];
        return b.intrinsic("llvm.x86.avx512.mask.scalef.ps.512", &args, b.vec(b.f32(), 16));
    }
    // The bits of the magic number vanish in the shift left.
    let half = b.shrs(by.raw, b.int_like(by.raw, 1));
    let power = |n: V<'c>| b.bitcast(b.add_c(b.shl_c(n, 23), 127 << 23), b.f32());
    b.mulf(b.mulf(p, power(half)), power(b.sub(by.raw, half)))
}

/// e to the x.
pub fn exp<'c>(b: &Build<'c>, avx512: bool, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -104.0, 89.0);
    let by = round(b, x, std::f64::consts::LOG2_E);
    let n = by.n;
    let c = |v: f64| b.float_like(x, v);
    let f = b.fma(n, c(-0.693359375), x);
    let f = b.fma(n, c(2.12194440e-4), f);
    let p = poly(
        b,
        f,
        &[1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1],
    );
    let p = b.fma(b.mulf(f, f), p, b.addf(f, c(1.0)));
    scale(b, avx512, p, &by)
}

/// 2 to the x.
pub fn exp2<'c>(b: &Build<'c>, avx512: bool, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -151.0, 129.0);
    let by = round(b, x, 1.0);
    let f = b.subf(x, by.n);
    let p =
        poly(b, f, &[1.535336188e-4, 1.339887440e-3, 9.618437357e-3, 5.550332471e-2, 2.402264791e-1, 6.931472028e-1]);
    scale(b, avx512, b.fma(p, f, b.float_like(x, 1.0)), &by)
}
