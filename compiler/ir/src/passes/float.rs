//! Floats of every width as exact integers times powers of two: the arithmetic under [`super::fold`].
//!
//! Every rounding of the folder goes through [`encode`], one integer algorithm for all formats, so that nothing here
//! leans on the conversions that the oracle uses.

use crate::{elem::Elem, scalar::Scalar};

/// An IEEE-like format.
struct Format {
    /// Bits of the fraction.
    fraction: u32,
    /// Exponent of the least normal number.
    least: i32,
    /// Pattern of the largest finite number.
    largest: u64,
    /// Numbers beyond become the largest finite one (fp8), not infinity.
    saturates: bool,
}

fn format(e: Elem) -> Option<Format> {
    let f = |fraction, least, largest, saturates| Some(Format { fraction, least, largest, saturates });
    match e {
        Elem::F64 => f(52, -1022, 0x7fef_ffff_ffff_ffff, false),
        Elem::F32 => f(23, -126, 0x7f7f_ffff, false),
        Elem::F16 => f(10, -14, 0x7bff, false),
        Elem::BF16 => f(7, -126, 0x7f7f, false),
        Elem::F8E4M3 => f(3, -6, 0x7e, true),
        Elem::F8E5M2 => f(2, -14, 0x7b, true),
        _ => None,
    }
}

/// Significant bits of a float type, the implicit one included; 0 for other types.
pub(super) fn digits(e: Elem) -> u32 {
    format(e).map_or(0, |f| f.fraction + 1)
}

/// 2^e, for exponents of normal f64 numbers.
fn power(e: i32) -> f64 {
    f64::from_bits(((e + 1023) as u64) << 52)
}

/// The value of a float, exactly. `None` for other element types.
pub(super) fn decode(s: Scalar) -> Option<f64> {
    let f = format(s.elem)?;
    if s.elem == Elem::F64 {
        return Some(f64::from_bits(s.bits));
    }
    let sign_bit = 1u64 << (s.elem.bits() - 1);
    let magnitude = s.bits & (sign_bit - 1);
    let field = (magnitude >> f.fraction) as i32;
    let fraction = magnitude & ((1 << f.fraction) - 1);
    let value = if magnitude > f.largest {
        let infinite = s.elem != Elem::F8E4M3 && magnitude == f.largest + 1;
        if infinite { f64::INFINITY } else { f64::NAN }
    } else if field == 0 {
        fraction as f64 * power(f.least - f.fraction as i32)
    } else {
        (fraction | 1 << f.fraction) as f64 * power(field - 1 + f.least - f.fraction as i32)
    };
    Some(if s.bits & sign_bit != 0 { -value } else { value })
}

/// ±`magnitude` · 2^`exponent`, rounded once to nearest even.
pub(super) fn encode(e: Elem, negative: bool, magnitude: u128, exponent: i32) -> Option<Scalar> {
    let f = format(e)?;
    let sign = (negative as u64) << (e.bits() - 1);
    if magnitude == 0 {
        return Some(Scalar::from_bits(e, sign));
    }
    // The binade, no lower than the subnormals'; then how many units of its last place.
    let binade = (127 - magnitude.leading_zeros() as i32 + exponent).max(f.least);
    let shift = binade - f.fraction as i32 - exponent;
    let units = match shift {
        ..=0 => magnitude << -shift,
        1..128 => {
            let (floor, rest, half) = (magnitude >> shift, magnitude & ((1 << shift) - 1), 1u128 << (shift - 1));
            floor + (rest > half || (rest == half && floor & 1 == 1)) as u128
        }
        // Below half of the least subnormal.
        _ => 0,
    };
    // A carry out of the fraction moves into the exponent by itself.
    let pattern = (((binade - f.least) as u128) << f.fraction) + units;
    let pattern = if pattern <= f.largest as u128 { pattern as u64 } else { f.largest + !f.saturates as u64 };
    Some(Scalar::from_bits(e, sign | pattern))
}

/// An f64 as another float type, rounded once. `None` for NaN, whose payload executors may choose.
pub(super) fn round(e: Elem, v: f64) -> Option<Scalar> {
    if v.is_nan() {
        return None;
    }
    if v.is_infinite() {
        // Far beyond every format but f64, which holds it as it is.
        return if e == Elem::F64 { Some(Scalar::from_bits(e, v.to_bits())) } else { encode(e, v < 0.0, 1, 2000) };
    }
    let field = ((v.to_bits() >> 52) & 0x7ff) as i32;
    let fraction = v.to_bits() & ((1 << 52) - 1);
    let (magnitude, exponent) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    encode(e, v.is_sign_negative(), magnitude as u128, exponent)
}

/// x·y + z for types up to f32, as an f64 rounded to odd: rounding that once more to the type gives the result that one
/// rounding of the exact value would give (the product is exact in f64).
pub(super) fn fma_to_odd(x: f64, y: f64, z: f64) -> f64 {
    let p = x * y;
    let sum = p + z;
    if !sum.is_finite() {
        return sum;
    }
    // Knuth's two-sum: `sum + error` is exactly `p + z`.
    let virtual_z = sum - p;
    let error = (p - (sum - virtual_z)) + (z - virtual_z);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away_from_zero = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away_from_zero { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}
