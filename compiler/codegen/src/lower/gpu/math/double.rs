//! Functions of f64: series long enough for the last place or two.

use super::super::super::{
    build::{Build, Cmp, FCmp, V},
    cpu::math::poly,
};

/// ln 2 in two parts, the first with few bits.
const LN2_HI: f64 = 6.931_471_803_691_238e-1;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// x within lo..=hi; NaN stays.
pub fn clamp<'c>(b: &Build<'c>, x: V<'c>, lo: f64, hi: f64) -> V<'c> {
    let (l, h) = (b.float_like(x, lo), b.float_like(x, hi));
    let x = b.select(b.cmpf(FCmp::Olt, x, l), l, x);
    b.select(b.cmpf(FCmp::Ogt, x, h), h, x)
}

/// An integral float of moderate size as i64; 0 for NaN.
pub fn to_int<'c>(b: &Build<'c>, n: V<'c>) -> V<'c> {
    let n = b.select(b.cmpf(FCmp::Uno, n, n), b.float_like(n, 0.0), n);
    b.fptosi(n, b.i64())
}

/// p · 2^n for integral n in −1100..=1100, in two factors, so that subnormal results round once and large ones overflow.
pub fn scale<'c>(b: &Build<'c>, p: V<'c>, n: V<'c>) -> V<'c> {
    let n = to_int(b, n);
    let half = b.shrs(n, b.int_like(n, 1));
    let power = |n: V<'c>| b.bitcast(b.shl_c(b.add_c(n, 1023), 52), b.f64());
    b.mulf(b.mulf(p, power(half)), power(b.sub(n, half)))
}

/// e^r for |r| ≤ 0.35: Taylor's series.
pub fn exp_small<'c>(b: &Build<'c>, r: V<'c>) -> V<'c> {
    let mut c = vec![1.0; 14];
    for i in 1..c.len() {
        c[i] = c[i - 1] / i as f64;
    }
    c.reverse();
    poly(b, r, &c)
}

/// e to the x.
pub fn exp<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -750.0, 710.0);
    let n = b.round_even(b.mulf(x, b.float_like(x, std::f64::consts::LOG2_E)));
    let r = b.fma(n, b.float_like(x, -LN2_HI), x);
    let r = b.fma(n, b.float_like(x, -LN2_LO), r);
    scale(b, exp_small(b, r), n)
}

/// 2 to the x.
pub fn exp2<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let x = clamp(b, x, -1080.0, 1025.0);
    let n = b.round_even(x);
    let r = b.mulf(b.subf(x, n), b.float_like(x, std::f64::consts::LN_2));
    scale(b, exp_small(b, r), n)
}

/// The argument of a logarithm taken apart: x = m · 2^e, m in √½..√2; log m = 2s + tail with s = (m − 1)/(m + 1).
pub struct Split<'c> {
    /// The exponent, a float.
    pub e: V<'c>,
    /// s and what rounding took from it.
    pub s: [V<'c>; 2],
    /// log m − 2s.
    pub tail: V<'c>,
}

/// Takes a positive, finite number apart.
pub fn split<'c>(b: &Build<'c>, x: V<'c>) -> Split<'c> {
    let c = |v: f64| b.float_like(x, v);
    let tiny = b.cmpf(FCmp::Olt, x, c(f64::MIN_POSITIVE));
    let scaled = b.select(tiny, b.mulf(x, c(2f64.powi(54))), x);
    let bits = b.bitcast(scaled, b.i64());
    // Subtract √½'s pattern: its mantissa carries for m above √2.
    let root = 0x3fe6_a09e_667f_3bcd_i64;
    let shifted = b.add_c(bits, -root);
    let e = b.sitofp(b.shrs(shifted, b.int_like(shifted, 52)), b.f64());
    let e = b.subf(e, b.select(tiny, c(54.0), c(0.0)));
    let m = b.bitcast(b.add_c(b.and_c(shifted, (1 << 52) - 1), root), b.f64());
    let f = b.subf(m, c(1.0));
    let d = b.addf(f, c(2.0));
    let d_low = b.subf(f, b.subf(d, c(2.0)));
    let s = b.divf(f, d);
    let rest = b.fma(b.negf(s), d, f);
    let s_low = b.divf(b.fma(b.negf(s), d_low, rest), d);
    // 2 · atanh(s) = 2s + 2s·z·(1/3 + z/5 + …), z = s² < 0.03.
    let z = b.mulf(s, s);
    let series: Vec<f64> = (1..12).rev().map(|i| 2.0 / (2 * i + 1) as f64).collect();
    let tail = b.mulf(b.mulf(s, z), poly(b, z, &series));
    Split { e, s: [s, s_low], tail: b.fma(s_low, c(2.0), tail) }
}

/// The values of zero, infinity and NaN, and NaN below zero.
pub fn specials<'c>(b: &Build<'c>, x: V<'c>, r: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let r = b.select(b.cmpf(FCmp::Oeq, x, c(f64::INFINITY)), x, r);
    let r = b.select(b.cmpf(FCmp::Oeq, x, c(0.0)), c(f64::NEG_INFINITY), r);
    b.select(b.cmpf(FCmp::Oge, x, c(0.0)), r, c(f64::NAN))
}

/// Natural logarithm.
pub fn log<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let l = split(b, x);
    let c = |v: f64| b.float_like(x, v);
    let low = b.fma(l.e, c(LN2_LO), l.tail);
    let two_s = b.addf(l.s[0], l.s[0]);
    specials(b, x, b.fma(l.e, c(LN2_HI), b.addf(two_s, low)))
}

/// Logarithm to base 2.
pub fn log2<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let (high, low) = log2_parts(b, x);
    specials(b, x, b.addf(high, low))
}

/// log2 of a positive, finite number as a sum of two.
pub fn log2_parts<'c>(b: &Build<'c>, x: V<'c>) -> (V<'c>, V<'c>) {
    let l = split(b, x);
    let c = |v: f64| b.float_like(x, v);
    let log2_e = std::f64::consts::LOG2_E;
    let two_s = b.addf(l.s[0], l.s[0]);
    let p = b.mulf(two_s, c(log2_e));
    // What rounding the product and log2 e took away.
    let low = b.fma(two_s, c(log2_e), b.negf(p));
    let low = b.fma(two_s, c(2.035_527_374_093_103_3e-17), low);
    let low = b.fma(l.tail, c(log2_e), low);
    let high = b.addf(l.e, p);
    let lost = b.addf(b.subf(l.e, high), p);
    (high, b.addf(lost, low))
}

/// Hyperbolic tangent.
pub fn tanh<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let a = b.absf(x);
    // (e^2a − 1)/(e^2a + 1): by the series of e^y − 1 for small y, so that nothing cancels.
    let y = b.addf(a, a);
    let mut k = vec![1.0; 19];
    for i in 1..k.len() {
        k[i] = k[i - 1] / (i + 1) as f64;
    }
    k.reverse();
    let less = b.mulf(y, poly(b, y, &k));
    let small = b.divf(less, b.addf(less, c(2.0)));
    let large = b.subf(c(1.0), b.divf(c(2.0), b.addf(exp(b, y), c(1.0))));
    let r = b.copysign(b.select(b.cmpf(FCmp::Olt, a, c(0.35)), small, large), x);
    b.select(b.cmpf(FCmp::Uno, x, x), x, r)
}

/// Error function.
pub fn erf<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let a = clamp(b, b.absf(x), 0.0, 7.0);
    let z = b.mulf(a, a);
    let e = exp(b, b.negf(z));
    // Below 2.5: e^−z · 2/√π · a · Σ (2z)^n / (1·3·5…(2n+1)), all terms positive.
    let mut k = vec![1.0; 56];
    for n in 1..k.len() {
        k[n] = k[n - 1] * 2.0 / (2 * n + 1) as f64;
    }
    k.reverse();
    let near = clamp(b, z, 0.0, 6.3);
    let series = b.mulf(b.mulf(a, c(std::f64::consts::FRAC_2_SQRT_PI)), poly(b, near, &k));
    let small = b.mulf(series, e);
    // Above: 1 − e^−z / (√π (a + (1/2)/(a + 1/(a + (3/2)/(a + …))))).
    let mut fraction = a;
    for i in (1..=40).rev() {
        fraction = b.addf(a, b.divf(c(f64::from(i) / 2.0), fraction));
    }
    let erfc = b.divf(b.mulf(e, c(0.5 * std::f64::consts::FRAC_2_SQRT_PI)), fraction);
    let large = b.subf(c(1.0), erfc);
    let r = b.copysign(b.select(b.cmpf(FCmp::Olt, a, c(2.5)), small, large), x);
    b.select(b.cmpf(FCmp::Uno, x, x), x, r)
}

/// Whether an integral float is odd: i1.
pub fn is_odd<'c>(b: &Build<'c>, y: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(y, v);
    let small = b.cmpf(FCmp::Olt, b.absf(y), c(2f64.powi(53)));
    let n = b.fptosi(b.select(small, y, c(0.0)), b.i64());
    b.cmp(Cmp::Ne, b.and_c(n, 1), b.int_like(n, 0))
}
