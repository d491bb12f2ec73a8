//! Numbers as bits: exact widening and single rounding for every element type.
//!
//! The oracle computes integers in `i128` and keeps the low bits, f32 and f64 natively, and the smaller floats in f64.
//! Everything that is rounded to a small float passes through [`encode`], which rounds an exact value once.

use crate::elem::Elem;

/// A binary interchange format narrower than f32.
struct Format {
    exp_bits: u32,
    man_bits: u32,
    /// Pattern of the largest finite value, sign cleared.
    largest: u64,
    /// What a value beyond `largest` becomes: infinity, or `largest` for the 8-bit floats, which saturate.
    overflow: u64,
    /// Pattern of the NaN that conversions make.
    nan: u64,
}

const F16: Format = Format { exp_bits: 5, man_bits: 10, largest: 0x7bff, overflow: 0x7c00, nan: 0x7e00 };
const BF16: Format = Format { exp_bits: 8, man_bits: 7, largest: 0x7f7f, overflow: 0x7f80, nan: 0x7fc0 };
const F8E4M3: Format = Format { exp_bits: 4, man_bits: 3, largest: 0x7e, overflow: 0x7e, nan: 0x7f };
const F8E5M2: Format = Format { exp_bits: 5, man_bits: 2, largest: 0x7b, overflow: 0x7b, nan: 0x7e };

impl Format {
    fn of(elem: Elem) -> Option<&'static Format> {
        match elem {
            Elem::F16 => Some(&F16),
            Elem::BF16 => Some(&BF16),
            Elem::F8E4M3 => Some(&F8E4M3),
            Elem::F8E5M2 => Some(&F8E5M2),
            _ => None,
        }
    }
    fn sign(&self, negative: bool) -> u64 {
        (negative as u64) << (self.exp_bits + self.man_bits)
    }
    /// Exponent of the smallest normal number, which is also that of the subnormals.
    fn min_exp(&self) -> i32 {
        2 - (1 << (self.exp_bits - 1))
    }
}

/// The pattern nearest to ±`mantissa`·2^`exp` (an exact value), ties to even.
fn encode(f: &Format, negative: bool, mantissa: u64, exp: i32) -> u64 {
    if mantissa == 0 {
        return f.sign(negative);
    }
    // The binade of the value, not below the subnormals'; one unit in its last place is 2^unit.
    let binade = (63 - mantissa.leading_zeros() as i32 + exp).max(f.min_exp());
    let unit = binade - f.man_bits as i32;
    let shift = unit - exp;
    let units = if shift <= 0 {
        mantissa << -shift
    } else if shift > 64 {
        0 // less than half a unit
    } else {
        let (mantissa, half) = (mantissa as u128, 1u128 << (shift - 1));
        let (units, rest) = ((mantissa >> shift) as u64, mantissa & (2 * half - 1));
        units + (rest > half || (rest == half && units % 2 == 1)) as u64
    };
    // A normal number's `units` has the hidden bit, which counts as one step of the exponent field; a carry out of the
    // mantissa moves into the exponent by itself.
    let pattern = (((binade - f.min_exp()) as u64) << f.man_bits) + units;
    f.sign(negative) | if pattern > f.largest { f.overflow } else { pattern }
}

/// 2^e for e in the normal range of f64.
fn pow2(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The value of a float's pattern; exact.
pub(super) fn widen(elem: Elem, bits: u64) -> f64 {
    let Some(f) = Format::of(elem) else {
        return if elem == Elem::F32 { f32::from_bits(bits as u32) as f64 } else { f64::from_bits(bits) };
    };
    let negative = bits & f.sign(true) != 0;
    let field = (bits >> f.man_bits) & ((1 << f.exp_bits) - 1);
    let man = bits & ((1 << f.man_bits) - 1);
    let magnitude = if elem == Elem::F8E4M3 && bits & 0x7f == f.nan {
        f64::NAN
    } else if elem != Elem::F8E4M3 && field == (1 << f.exp_bits) - 1 {
        if man == 0 { f64::INFINITY } else { f64::NAN }
    } else if field == 0 {
        man as f64 * pow2(f.min_exp() - f.man_bits as i32)
    } else {
        (man + (1 << f.man_bits)) as f64 * pow2(f.min_exp() + field as i32 - 1 - f.man_bits as i32)
    };
    if negative { -magnitude } else { magnitude }
}

/// The pattern of the float type `elem` nearest to `v`, ties to even; the 8-bit types saturate.
pub(super) fn round(elem: Elem, v: f64) -> u64 {
    let Some(f) = Format::of(elem) else {
        return if elem == Elem::F32 { (v as f32).to_bits() as u64 } else { v.to_bits() };
    };
    let negative = v.is_sign_negative();
    if v.is_nan() {
        return f.sign(negative) | f.nan;
    }
    if v.is_infinite() {
        return f.sign(negative) | f.overflow;
    }
    let bits = v.to_bits();
    let (field, man) = ((bits >> 52) as i32 & 0x7ff, bits & ((1 << 52) - 1));
    if field == 0 { encode(f, negative, man, -1074) } else { encode(f, negative, man | 1 << 52, field - 1075) }
}

/// The integer value of a pattern: sign-extended for signed types, 0 or 1 for `bool`.
pub(super) fn int(elem: Elem, bits: u64) -> i128 {
    let unused = 128 - elem.bits();
    if elem.is_signed() { ((bits as i128) << unused) >> unused } else { bits as i128 }
}

/// The pattern of an integer's low bits.
pub(super) fn wrap(elem: Elem, v: i128) -> u64 {
    let width = elem.bits();
    if width == 64 { v as u64 } else { v as u64 & ((1 << width) - 1) }
}

/// An integer (at most 65 bits with its sign) rounded once to a float type.
pub(super) fn int_to_float(elem: Elem, v: i128) -> u64 {
    match elem {
        Elem::F64 => (v as f64).to_bits(),
        Elem::F32 => (v as f32).to_bits() as u64,
        _ => Format::of(elem).map_or(0, |f| encode(f, v < 0, v.unsigned_abs() as u64, 0)),
    }
}

/// A float truncated to an integer type, saturating; NaN gives 0.
fn float_to_int(elem: Elem, v: f64) -> u64 {
    if v.is_nan() {
        return 0;
    }
    let width = elem.bits();
    let (least, most) = if elem.is_signed() {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    } else {
        (0, (1i128 << width) - 1)
    };
    // `as i128` truncates and saturates far outside any element type.
    wrap(elem, (v as i128).clamp(least, most))
}

/// Value conversion between any two element types. A cast to the same type changes nothing, not even a NaN's payload.
pub(super) fn cast(from: Elem, to: Elem, bits: u64) -> u64 {
    if from == to {
        return bits;
    }
    match (from.is_float(), to) {
        (true, Elem::Bool) => (widen(from, bits) != 0.0) as u64,
        (false, Elem::Bool) => (bits != 0) as u64,
        (true, to) if to.is_float() => round(to, widen(from, bits)),
        (true, to) => float_to_int(to, widen(from, bits)),
        (false, to) if to.is_float() => int_to_float(to, int(from, bits)),
        (false, to) => wrap(to, int(from, bits)),
    }
}

/// x·y + z rounded once, for floats narrower than f32.
///
/// The product is exact in f64 (at most 22 significant bits, exponents far from f64's ends). The sum is rounded *to odd*:
/// if it is inexact and its last bit is even, it moves one step towards the exact value. A value rounded to odd at 53
/// bits rounds to any format of at most 51 bits as the exact value would.
pub(super) fn fma_small(elem: Elem, x: u64, y: u64, z: u64) -> u64 {
    let (p, z) = (widen(elem, x) * widen(elem, y), widen(elem, z));
    let s = p + z;
    if !s.is_finite() {
        return round(elem, s);
    }
    // The exact error of the sum (Knuth's two-sum; nothing overflows here).
    let zz = s - p;
    let err = (p - (s - zz)) + (z - zz);
    let odd = if err != 0.0 && s.to_bits() & 1 == 0 {
        // `s` is not zero: an inexact sum never is.
        let away = (err > 0.0) == (s > 0.0);
        f64::from_bits(if away { s.to_bits() + 1 } else { s.to_bits() - 1 })
    } else {
        s
    };
    round(elem, odd)
}
