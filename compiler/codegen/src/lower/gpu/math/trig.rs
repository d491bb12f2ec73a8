//! sin and cos. The argument is reduced by multiples of π/2: in f64 by a product with its parts where that is exact enough,
//! and by the bits of 2/π that matter (Payne and Hanek) where the argument is large.

use super::super::super::{
    build::{Build, Cmp, FCmp, V},
    cpu::math::poly,
};

/// The first 192 bits of 2/π.
const TWO_OVER_PI: [u32; 6] = [0xa2f9_836e, 0x4e44_1529, 0xfc27_57d1, 0xf534_ddc0, 0xdb62_9599, 0x3c43_9041];

/// sin (`quarter` 0) or cos (1) of an f32.
pub fn single<'c>(b: &Build<'c>, x: V<'c>, quarter: i64) -> V<'c> {
    let wide = b.extf(x, b.f64());
    let small = b.cmpf(FCmp::Olt, b.absf(x), b.float_like(x, 268_435_456.0));
    let parts = b.if_(
        small,
        &[b.f64(), b.i32()],
        || {
            let (r, q) = near(b, wide);
            vec![r, q]
        },
        || {
            let (r, q) = far(b, x);
            vec![r, q]
        },
    );
    let (r, q) = (b.truncf(parts[0], b.f32()), b.add_c(parts[1], quarter));
    let z = b.mulf(r, r);
    let s = poly(b, z, &[-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]);
    let s = b.fma(b.mulf(s, z), r, r);
    let c = poly(b, z, &[2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2]);
    let c = b.fma(b.mulf(c, z), z, b.fma(z, b.float_like(z, -0.5), b.float_like(z, 1.0)));
    let v = choose(b, q, s, c);
    // Of infinity and NaN.
    b.select(b.cmpf(FCmp::Olt, b.absf(x), b.float_like(x, f64::INFINITY)), v, b.float_like(x, f64::NAN))
}

/// By the quadrant: s or c, or the negative of it.
fn choose<'c>(b: &Build<'c>, q: V<'c>, s: V<'c>, c: V<'c>) -> V<'c> {
    let zero = b.int_like(q, 0);
    let v = b.select(b.cmp(Cmp::Eq, b.and_c(q, 1), zero), s, c);
    b.select(b.cmp(Cmp::Ne, b.and_c(q, 2), zero), b.negf(v), v)
}

/// x − n·π/2 and n, for |x| below 2^28, by three parts of π/2.
fn near<'c>(b: &Build<'c>, x: V<'c>) -> (V<'c>, V<'c>) {
    let c = |v: f64| b.float_like(x, v);
    let n = b.round_even(b.mulf(x, c(std::f64::consts::FRAC_2_PI)));
    let r = b.fma(n, c(-std::f64::consts::FRAC_PI_2), x);
    let r = b.fma(n, c(-6.123_233_995_736_766e-17), r);
    (r, b.fptosi(n, b.i32()))
}

/// The same for larger f32: the significand times the bits of 2/π, of which two before the point and 62 behind it count.
fn far<'c>(b: &Build<'c>, x: V<'c>) -> (V<'c>, V<'c>) {
    let (i64, bits) = (b.i64(), b.bitcast(x, b.i32()));
    let wide = |v: V<'c>| b.zext(v, i64);
    let exponent = b.add_c(b.and_c(b.shru_c(bits, 23), 0xff), -127);
    // Infinity and NaN take any finite way.
    let exponent = b.mins(exponent, b.c32(127));
    let significand = wide(b.or(b.shl_c(bits, 8), b.c32(i32::MIN)));
    // Seven words of the product, lowest first.
    let mut product = vec![];
    let mut carry = b.c64(0);
    for word in TWO_OVER_PI.iter().rev() {
        let t = b.add(b.mul(significand, b.c64(i64::from(*word))), carry);
        product.push(b.and_c(t, 0xffff_ffff));
        carry = b.shru_c(t, 32);
    }
    product.push(carry);
    // The bit before the point has the number 223 − exponent; the window's top is the one above.
    let top = b.sub(b.c32(224), exponent);
    let word = b.shru_c(top, 5);
    let pick = |below: usize| {
        (3..6).fold(product[6 - below], |rest, k| {
            b.select(b.cmp(Cmp::Eq, word, b.c32(k)), product[k as usize - below], rest)
        })
    };
    let up = wide(b.sub(b.c32(31), b.and_c(top, 31)));
    let upper = b.or(b.shl_c(pick(0), 32), pick(1));
    // Shifts by 32 − up of a word that fits: up is below 32.
    let lower = b.shru(pick(2), b.sub(b.c64(32), up));
    let window = b.or(b.shl(upper, up), lower);
    // Rounded to the nearest quarter turn: the fraction as a signed number.
    let quarter = b.trunci(b.shru_c(b.add(window, b.c64(1 << 61)), 62), b.i32());
    let fraction = b.sitofp(b.shl_c(window, 2), b.f64());
    let r = b.mulf(fraction, b.float_like(fraction, std::f64::consts::FRAC_PI_2 / 2f64.powi(64)));
    let negative = b.cmp(Cmp::Slt, bits, b.c32(0));
    (b.select(negative, b.negf(r), r), b.select(negative, b.sub(b.c32(0), quarter), quarter))
}

/// sin (`quarter` 0) or cos (1) of an f64. Beyond 2^28 the reduction loses digits.
pub fn double<'c>(b: &Build<'c>, x: V<'c>, quarter: i64) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let bounded = b.cmpf(FCmp::Olt, b.absf(x), c(2f64.powi(30)));
    let reduced = b.select(bounded, x, super::super::fmod::fmod(b, x, c(std::f64::consts::TAU)));
    let finite = b.cmpf(FCmp::Olt, b.absf(x), c(f64::INFINITY));
    let safe = b.select(finite, reduced, c(0.0));
    let n = b.round_even(b.mulf(safe, c(std::f64::consts::FRAC_2_PI)));
    let r = b.fma(n, c(-std::f64::consts::FRAC_PI_2), safe);
    let r = b.fma(n, c(-6.123_233_995_736_766e-17), r);
    let q = b.add_c(b.trunci(b.fptosi(n, b.i64()), b.i32()), quarter);
    let z = b.mulf(r, r);
    // Taylor's series: |r| ≤ π/4.
    let series = |first: usize| {
        let mut k: Vec<f64> = vec![1.0];
        for i in 1..10 {
            let n = 2 * i + first;
            k.push(-k[i - 1] / (n * (n - 1)) as f64);
        }
        k.reverse();
        poly(b, z, &k)
    };
    let v = choose(b, q, b.mulf(r, series(1)), series(0));
    b.select(finite, v, c(f64::NAN))
}
