//! Conversions between element types, exact by the rules of the language: floats round once to nearest even, fp8
//! saturates, float to integer truncates and saturates, NaN gives 0.
//!
//! Everything narrower than f32 is rounded from f32. What does not fit f32 exactly (f64, wide integers) is first rounded
//! *to odd* there: cut, and the last bit set if anything was lost. f32 has more than two digits more than any narrow
//! type, so that rounding the odd-rounded value gives what rounding the exact one would.

use super::{
    build::{Build, Cmp, FCmp, V},
    machine::carrier,
};
use tegula_ir::Elem;

/// A float as f32 (f64 stays f64); exact.
pub fn widen<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    match e {
        Elem::F16 => b.extf(x, b.f32()),
        Elem::BF16 => b.bitcast(b.shl_c(b.zext(x, b.i32()), 16), b.f32()),
        // The upper half of an f16.
        Elem::F8E5M2 => b.extf(b.bitcast(b.shl_c(b.zext(x, b.i16()), 8), b.f16()), b.f32()),
        Elem::F8E4M3 => {
            // As f16 with the exponent 8 too small; both widen exactly, subnormals too.
            let wide = b.zext(x, b.i16());
            let magnitude = b.shl_c(b.and_c(wide, 0x7f), 7);
            let sign = b.shl_c(b.and_c(wide, 0x80), 8);
            let half = b.bitcast(b.or(magnitude, sign), b.f16());
            let value = b.extf(half, b.f32());
            let value = b.mulf(value, b.float_like(value, 256.0));
            let nan = b.cmp(Cmp::Eq, b.and_c(x, 0x7f), b.int_like(x, 0x7f));
            b.select(nan, b.float_like(value, f64::NAN), value)
        }
        _ => x,
    }
}

/// An f32 rounded to a float of at most 32 bits.
pub fn narrow<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    match e {
        Elem::F16 => b.truncf(x, b.f16()),
        Elem::BF16 => {
            let u = b.bitcast(x, b.i32());
            let upper = b.shru_c(u, 16);
            let round = b.add_c(b.and_c(upper, 1), 0x7fff);
            let rounded = b.shru_c(b.add(u, round), 16);
            let nan = b.cmpf(FCmp::Uno, x, x);
            b.trunci(b.select(nan, b.or(upper, b.int_like(upper, 0x40)), rounded), b.i16())
        }
        Elem::F8E4M3 => narrow_small(b, x, 3, -6, 448.0, 0x7f),
        Elem::F8E5M2 => narrow_small(b, x, 2, -14, 57344.0, 0x7e),
        _ => x,
    }
}

/// f32 to an 8-bit float with `man` mantissa bits, least normal exponent `min_exp`, largest value `max`.
fn narrow_small<'c>(b: &Build<'c>, x: V<'c>, man: i64, min_exp: i64, max: f64, nan: i64) -> V<'c> {
    let sign = b.and_c(b.shru_c(b.bitcast(x, b.i32()), 24), 0x80);
    let a = b.absf(x);
    let is_nan = b.cmpf(FCmp::Uno, x, x);
    let limit = b.float_like(a, max);
    let a = b.select(b.cmpf(FCmp::Ogt, a, limit), limit, a);
    let u = b.bitcast(a, b.i32());
    // Normal numbers: round the mantissa in place, then move the exponent.
    let cut = 23 - man;
    let odd = b.and_c(b.shru_c(u, cut), 1);
    let rounded = b.shru_c(b.add(b.add_c(u, (1 << (cut - 1)) - 1), odd), cut);
    let normal = b.add_c(rounded, -((127 + min_exp - 1) << man));
    // Subnormal ones: adding a number whose last place is theirs rounds and leaves the units in the low bits.
    let magic = 2f64.powi((min_exp - man + 23) as i32);
    let shifted = b.bitcast(b.addf(a, b.float_like(a, magic)), b.i32());
    let small = b.add_c(shifted, -((magic as f32).to_bits() as i64));
    let is_small = b.cmpf(FCmp::Olt, a, b.float_like(a, 2f64.powi(min_exp as i32)));
    let magnitude = b.select(is_nan, b.int_like(u, nan), b.select(is_small, small, normal));
    b.trunci(b.or(magnitude, sign), b.i8())
}

/// An f64 as f32, rounded to odd.
fn to_odd<'c>(b: &Build<'c>, x: V<'c>) -> V<'c> {
    let y = b.truncf(x, b.f32());
    let back = b.extf(y, b.f64());
    let bits = b.bitcast(y, b.i32());
    let too_far = b.cmpf(FCmp::Ogt, b.absf(back), b.absf(x));
    let cut = b.select(too_far, b.add_c(bits, -1), bits);
    let inexact = b.cmpf(FCmp::One, back, x);
    b.bitcast(b.select(inexact, b.or(cut, b.int_like(cut, 1)), bits), b.f32())
}

/// An integer as f64 if it is exact there, else with the bits that do not fit folded into the last one that does.
fn int_to_f64<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    if e.bits() < 64 {
        return if e.is_signed() { b.sitofp(x, b.f64()) } else { b.uitofp(x, b.f64()) };
    }
    let negative = if e.is_signed() { Some(b.cmp(Cmp::Slt, x, b.int_like(x, 0))) } else { None };
    let m = negative.map_or(x, |n| b.select(n, b.sub(b.int_like(x, 0), x), x));
    let lost = b.cmp(Cmp::Ne, b.and_c(m, 2047), b.int_like(m, 0));
    let sticky = b.or(b.shru_c(m, 11), b.zext(lost, b.i64()));
    let large = b.sitofp(sticky, b.f64());
    let large = b.mulf(large, b.float_like(large, 2048.0));
    let is_large = b.cmp(Cmp::Ne, b.shru_c(m, 53), b.int_like(m, 0));
    let v = b.select(is_large, large, b.sitofp(b.and_c(m, (1 << 53) - 1), b.f64()));
    negative.map_or(v, |n| b.select(n, b.negf(v), v))
}

/// f32 or f64 to an integer of at most 32 bits. LLVM's saturating conversions are right too, but fall apart into scalars.
fn float_to_int<'c>(b: &Build<'c>, x: V<'c>, to: Elem) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let x = b.select(b.cmpf(FCmp::Uno, x, x), c(0.0), x);
    let clamp = |x: V<'c>, lo: f64, hi: f64| {
        let x = b.select(b.cmpf(FCmp::Olt, x, c(lo)), c(lo), x);
        b.select(b.cmpf(FCmp::Ogt, x, c(hi)), c(hi), x)
    };
    let bits = to.bits() as i32;
    let (lo, hi) =
        if to.is_signed() { (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0) } else { (0.0, 2f64.powi(bits) - 1.0) };
    let exact = b.bits(x) == 64 || bits < 32;
    if exact && hi < 2147483648.0 {
        return b.trunci(b.fptosi(clamp(x, lo, hi), b.i32()), carrier(b, to));
    }
    // 2^31 − 1 is no f32, and what is above is no i32: convert what fits, then repair.
    let below = if b.bits(x) == 64 { 2147483647.0 } else { 2147483520.0 };
    let large = b.cmpf(FCmp::Oge, x, c(2147483648.0));
    let fits = b.fptosi(clamp(x, lo, below), b.i32());
    if to.is_signed() {
        return b.select(large, b.int_like(fits, i32::MAX.into()), fits);
    }
    let upper = b.fptosi(clamp(b.subf(x, c(2147483648.0)), 0.0, below), b.i32());
    let upper = b.xor(upper, b.int_like(upper, i32::MIN.into()));
    let too_large = b.cmpf(FCmp::Oge, x, c(4294967296.0));
    b.select(large, b.select(too_large, b.int_like(upper, -1), upper), fits)
}

/// `cast`.
pub fn cast<'c>(b: &Build<'c>, x: V<'c>, from: Elem, to: Elem) -> V<'c> {
    if from == to {
        return x;
    }
    match (from.is_float(), to.is_float()) {
        (true, _) if to == Elem::Bool => {
            let x = widen(b, x, from);
            b.cmpf(FCmp::Une, x, b.float_like(x, 0.0))
        }
        (false, _) if to == Elem::Bool => b.cmp(Cmp::Ne, x, b.int_like(x, 0)),
        (true, true) => {
            let wide = widen(b, x, from);
            match (from, to) {
                (_, Elem::F64) => b.extf(wide, b.f64()),
                (Elem::F64, Elem::F32) => b.truncf(x, b.f32()),
                (Elem::F64, _) => narrow(b, to_odd(b, x), to),
                _ => narrow(b, wide, to),
            }
        }
        (true, false) => {
            let wide = widen(b, x, from);
            if to.bits() <= 32 {
                return float_to_int(b, wide, to);
            }
            let name = if to.is_signed() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
            b.intrinsic(name, &[wide], b.vec(carrier(b, to), b.lanes(x)))
        }
        (false, true) => match to {
            Elem::F64 | Elem::F32 if from.is_signed() => b.sitofp(x, carrier(b, to)),
            Elem::F64 | Elem::F32 => b.uitofp(x, carrier(b, to)),
            // What f32 cannot hold is beyond the largest f16 and fp8 anyway.
            Elem::BF16 if from.bits() > 16 => narrow(b, to_odd(b, int_to_f64(b, x, from)), to),
            _ if from.is_signed() => narrow(b, b.sitofp(x, b.f32()), to),
            _ => narrow(b, b.uitofp(x, b.f32()), to),
        },
        (false, false) => {
            let t = carrier(b, to);
            if to.bits() < from.bits() {
                b.trunci(x, t)
            } else if from.is_signed() {
                b.sext(x, t)
            } else {
                b.zext(x, t)
            }
        }
    }
}

/// x·y + z of floats below f32, rounded once: the product is exact in f64, the sum is rounded to odd there and again in
/// f32, and then for good.
pub fn fma_small<'c>(b: &Build<'c>, e: Elem, x: &[V<'c>]) -> V<'c> {
    let wide: Vec<V> = x.iter().map(|v| b.extf(widen(b, *v, e), b.f64())).collect();
    let p = b.mulf(wide[0], wide[1]);
    let z = wide[2];
    let s = b.addf(p, z);
    // Knuth's two-sum: the exact error of s.
    let zz = b.subf(s, p);
    let error = b.addf(b.subf(p, b.subf(s, zz)), b.subf(z, zz));
    let bits = b.bitcast(s, b.i64());
    let zero = b.float_like(s, 0.0);
    let inexact = b.cmpf(FCmp::One, error, zero);
    let even = b.cmp(Cmp::Eq, b.and_c(bits, 1), b.int_like(bits, 0));
    let away = b.cmp(Cmp::Eq, b.cmpf(FCmp::Ogt, error, zero), b.cmpf(FCmp::Ogt, s, zero));
    let moved = b.select(away, b.add_c(bits, 1), b.add_c(bits, -1));
    let odd = b.select(b.and(inexact, even), moved, bits);
    narrow(b, to_odd(b, b.bitcast(odd, b.f64())), e)
}
