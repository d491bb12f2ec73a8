//! The exact remainder of floats, as C's `fmod`: long division of the significands, bit by bit.

use super::super::build::{Build, Cmp, FCmp, V};

/// x − y · trunc(x / y), exactly; f32 or f64. NaN for an infinite x, a zero y, or a NaN.
pub fn fmod<'c>(b: &Build<'c>, x: V<'c>, y: V<'c>) -> V<'c> {
    let bits = b.bits(x);
    let man = if bits == 64 { 52 } else { 23 };
    let int = b.int(bits);
    let c = |v: i64| b.c(int, v);
    let magnitude = |v: V<'c>| b.bitcast(b.absf(v), int);
    let (ax, ay) = (magnitude(x), magnitude(y));
    // Significand and exponent, such that the value is significand · 2^exponent up to a common factor; subnormals too.
    let split = |v: V<'c>| {
        let (e, f) = (b.shru_c(v, man), b.and_c(v, (1 << man) - 1));
        let normal = b.cmp(Cmp::Ne, e, c(0));
        (b.select(normal, b.or(f, c(1 << man)), f), b.maxs(e, c(1)))
    };
    let ((mx, ex), (my, ey)) = (split(ax), split(ay));
    let zero = b.float_like(x, 0.0);
    let infinite = b.cmpf(FCmp::Oeq, b.absf(x), b.float_like(x, f64::INFINITY));
    let bad = b.or(b.or(infinite, b.cmpf(FCmp::Oeq, y, zero)), b.cmpf(FCmp::Uno, x, y));
    let less = b.cmp(Cmp::Ult, ax, ay);
    let skip = b.or(bad, less);

    let divisor = b.select(skip, c(1), my);
    let steps = b.select(skip, c(0), b.sub(ex, ey));
    let first = b.remu(mx, divisor);
    let rest = b.for_(b.c64(0), b.sext(steps, b.i64()), b.c64(1), &[first], |_, r| {
        let twice = b.shl_c(r[0], 1);
        let over = b.cmp(Cmp::Uge, twice, divisor);
        vec![b.select(over, b.sub(twice, divisor), twice)]
    })[0];

    // rest · 2^(ey − bias − man): exact, in two factors.
    let bias = if bits == 64 { 1023 } else { 127 };
    let scale = b.add_c(ey, -(bias + man));
    let half = b.shrs(scale, c(1));
    let power = |n: V<'c>| b.bitcast(b.shl_c(b.add_c(n, bias), man), b.elem(x));
    let value = b.mulf(b.mulf(b.uitofp(rest, b.elem(x)), power(half)), power(b.sub(scale, half)));
    let value = b.copysign(value, x);
    let value = b.select(less, x, value);
    b.select(bad, b.float_like(x, f64::NAN), value)
}
