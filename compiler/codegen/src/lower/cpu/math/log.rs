//! log and log2. The argument is m · 2^e with m in √½..√2; a polynomial of degree 8 in m − 1 (Cephes' coefficients).

use super::{
    super::build::{Build, FCmp, V},
    poly,
};

struct Split<'c> {
    /// m − 1.
    f: V<'c>,
    /// log(m) − f.
    tail: V<'c>,
    /// The exponent, a float.
    e: V<'c>,
}

fn split<'c>(b: &Build<'c>, x: V<'c>) -> Split<'c> {
    let c = |v: f64| b.float_like(x, v);
    // Subnormal numbers get a normal exponent first.
    let tiny = b.cmpf(FCmp::Olt, x, c(f64::from(f32::MIN_POSITIVE)));
    let scaled = b.select(tiny, b.mulf(x, c(8388608.0)), x);
    let bits = b.bitcast(scaled, b.i32());
    // The exponent that leaves m in √½..√2: subtract √½'s pattern, whose mantissa carries for larger ones.
    let root = 0x3f3504f3;
    let shifted = b.add_c(bits, -root);
    let e = b.shrs(shifted, b.int_like(shifted, 23));
    let m = b.bitcast(b.add_c(b.and_c(shifted, 0x7fffff), root), b.f32());
    let e = b.subf(b.sitofp(e, b.f32()), b.select(tiny, c(23.0), c(0.0)));
    let f = b.subf(m, c(1.0));
    let z = b.mulf(f, f);
    let p = poly(
        b,
        f,
        &[
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ],
    );
    let tail = b.fma(z, c(-0.5), b.mulf(b.mulf(f, z), p));
    Split { f, tail, e }
}

/// The values of zero, infinity and NaN, and NaN below zero.
fn specials<'c>(b: &Build<'c>, x: V<'c>, r: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let r = b.select(b.cmpf(FCmp::Oeq, x, c(f64::INFINITY)), x, r);
    let r = b.select(b.cmpf(FCmp::Oeq, x, c(0.0)), c(f64::NEG_INFINITY), r);
    b.select(b.cmpf(FCmp::Uge, x, c(0.0)), b.select(b.cmpf(FCmp::Uno, x, x), x, r), c(f64::NAN))
}

/// Natural logarithm.
pub fn log<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let Split { f, tail, e } = split(b, x);
    let tail = b.fma(e, b.float_like(x, -2.12194440e-4), tail);
    let r = b.fma(e, b.float_like(x, 0.693359375), b.addf(f, tail));
    specials(b, x, r)
}

/// Logarithm to base 2.
pub fn log2<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let Split { f, tail, e } = split(b, x);
    // log2(e) − 1, so that the leading part of each product is exact.
    let c = b.float_like(x, std::f64::consts::LOG2_E - 1.0);
    let r = b.fma(tail, c, b.fma(f, c, tail));
    specials(b, x, b.addf(b.addf(r, f), e))
}
