//! x to the y in f64, as 2^(y · log2 x) with the logarithm as a sum of two numbers.

use super::{
    super::super::build::{Build, FCmp, V},
    double::{clamp, exp_small, is_odd, log2_parts, scale},
};

/// x to the y with the special cases of C.
pub fn pow<'c>(b: &Build<'c>, x: V<'c>, y: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let a = b.absf(x);
    let is = |v: V<'c>, k: f64| b.cmpf(FCmp::Oeq, v, c(k));
    let infinite = f64::INFINITY;
    let (high, low) = log2_parts(b, a);
    // log2 of 0 and infinity.
    let high = b.select(is(a, 0.0), c(-infinite), b.select(is(a, infinite), c(infinite), high));
    let q = b.mulf(y, high);
    let far = b.cmpf(FCmp::Oge, b.absf(q), c(1100.0));
    let lost = b.fma(y, high, b.negf(q));
    let q_low = b.select(far, c(0.0), b.fma(y, low, lost));
    let q = clamp(b, q, -1100.0, 1100.0);
    let n = b.round_even(q);
    let r = b.mulf(b.addf(b.subf(q, n), q_low), c(std::f64::consts::LN_2));
    let p = scale(b, exp_small(b, r), n);

    // A negative base: the sign of an odd power; NaN for what is no integer.
    let negative = b.cmp(super::super::super::build::Cmp::Slt, b.bitcast(x, b.i64()), b.c64(0));
    let integral = b.cmpf(FCmp::Oeq, b.floor(y), y);
    let odd = b.and(integral, is_odd(b, b.floor(y)));
    let p = b.select(b.and(negative, odd), b.negf(p), p);
    let finite = b.and(b.cmpf(FCmp::Olt, a, c(infinite)), b.cmpf(FCmp::Une, a, c(0.0)));
    let complex = b.and(b.and(negative, finite), b.not(integral));
    let p = b.select(complex, c(f64::NAN), p);
    let nan = b.cmpf(FCmp::Uno, x, y);
    let p = b.select(nan, c(f64::NAN), p);
    let unit = b.and(is(a, 1.0), is(b.absf(y), infinite));
    let one = b.or(b.or(is(y, 0.0), is(x, 1.0)), unit);
    b.select(one, c(1.0), p)
}
