//! One element as bits: exact constants in the IR, and the values that the oracle computes with.

use crate::elem::Elem;
use half::{bf16, f16};
use std::fmt;

/// An element value: `bits` holds the element's bit pattern in its low [`Elem::bits`] bits, the rest is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scalar {
    /// Element type.
    pub elem: Elem,
    /// Bit pattern, zero-extended.
    pub bits: u64,
}

impl Scalar {
    /// From a bit pattern; bits above the element's width are dropped.
    pub fn from_bits(elem: Elem, bits: u64) -> Scalar {
        let width = elem.bits();
        Scalar { elem, bits: if width == 64 { bits } else { bits & ((1 << width) - 1) } }
    }
    /// Zero (false, +0.0).
    pub fn zero(elem: Elem) -> Scalar {
        Scalar { elem, bits: 0 }
    }
    /// `bool`.
    pub fn bool(v: bool) -> Scalar {
        Scalar { elem: Elem::Bool, bits: v as u64 }
    }
    /// An integer, wrapped to the element's width; for a float, the nearest value.
    pub fn from_i64(elem: Elem, v: i64) -> Scalar {
        match elem {
            Elem::F32 => Scalar { elem, bits: (v as f32).to_bits() as u64 },
            e if e.is_float() => {
                // Beyond 2^53, the bits that f64 drops leave a trace in the last one kept, so that nothing rounds twice.
                let a = v.unsigned_abs();
                let kept = if e != Elem::F64 && a >= 1 << 53 { (a >> 11 | (a & 0x7ff != 0) as u64) << 11 } else { a };
                Scalar::from_f64(e, if v < 0 { -(kept as f64) } else { kept as f64 })
            }
            Elem::Bool => Scalar::bool(v != 0),
            e => Scalar::from_bits(e, v as u64),
        }
    }
    /// A float rounded once to nearest even (fp8 saturates to the largest finite value, NaN stays NaN); for an integer,
    /// truncated and saturated, NaN gives 0.
    pub fn from_f64(elem: Elem, v: f64) -> Scalar {
        let bits = match elem {
            Elem::F64 => v.to_bits(),
            Elem::F32 => (v as f32).to_bits() as u64,
            // Not by the crate `half`, which drops the low half of an f64 before it rounds.
            Elem::F16 => round_small(v, 5, 10, 65504.0, 0x7e00, Some(0x7c00)),
            Elem::BF16 => round_small(v, 8, 7, bf16::MAX.to_f64(), 0x7fc0, Some(0x7f80)),
            Elem::F8E4M3 => round_small(v, 4, 3, 448.0, 0x7f, None),
            Elem::F8E5M2 => round_small(v, 5, 2, 57344.0, 0x7e, None),
            Elem::I8 => v as i8 as u8 as u64,
            Elem::I16 => v as i16 as u16 as u64,
            Elem::I32 => v as i32 as u32 as u64,
            Elem::I64 => v as i64 as u64,
            Elem::U8 => v as u8 as u64,
            Elem::U16 => v as u16 as u64,
            Elem::U32 => v as u32 as u64,
            Elem::U64 => v as u64,
            Elem::Bool => (v != 0.0) as u64,
        };
        Scalar { elem, bits }
    }
    /// The value as f64 (exact for every type but 64-bit integers beyond 2^53).
    pub fn to_f64(self) -> f64 {
        match self.elem {
            Elem::F64 => f64::from_bits(self.bits),
            Elem::F32 => f32::from_bits(self.bits as u32) as f64,
            Elem::F16 => f16::from_bits(self.bits as u16).to_f64(),
            Elem::BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            Elem::F8E4M3 => widen_small(self.bits as u8, 4, 3),
            Elem::F8E5M2 => widen_small(self.bits as u8, 5, 2),
            e if e.is_signed() => self.to_i64() as f64,
            _ => self.bits as f64,
        }
    }
    /// The integer value, sign-extended for signed types (the bit pattern of a u64); 0 or 1 for `bool`. Meaningless for floats.
    pub fn to_i64(self) -> i64 {
        if self.elem.is_signed() {
            let shift = 64 - self.elem.bits();
            ((self.bits << shift) as i64) >> shift
        } else {
            self.bits as i64
        }
    }
    /// Truth.
    pub fn is_true(self) -> bool {
        self.bits != 0
    }
}

/// Rounds to a float of at most 16 bits once, to nearest even. `max` is the largest finite value, `nan` the pattern of a
/// NaN, `infinity` that of values beyond `max`; without one they saturate.
fn round_small(v: f64, exp_bits: i32, man_bits: i32, max: f64, nan: u64, infinity: Option<u64>) -> u64 {
    let sign = (v.is_sign_negative() as u64) << (exp_bits + man_bits);
    if v.is_nan() {
        return sign | nan;
    }
    let a = v.abs();
    let bias = (1 << (exp_bits - 1)) - 1;
    let min_exp = 1 - bias;
    let exponent = |a: f64| ((a.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    // Exponent of the binade (clamped to the subnormals'), then the value in units of its last place.
    let exp = exponent(a).max(min_exp);
    let units = if a.is_finite() { (a * 2f64.powi(man_bits - exp)).round_ties_even() } else { a };
    // A carry out of the mantissa moves into the exponent by itself; a subnormal has `units` below 2^man_bits.
    let pattern = |exp: i32, units: f64| (((exp - min_exp) as u64) << man_bits) + units as u64;
    if units * 2f64.powi(exp - man_bits) > max {
        let max_exp = exponent(max);
        return sign | infinity.unwrap_or_else(|| pattern(max_exp, max * 2f64.powi(man_bits - max_exp)));
    }
    sign | pattern(exp, units)
}

fn widen_small(bits: u8, exp_bits: i32, man_bits: i32) -> f64 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let exp = ((bits & 0x7f) >> man_bits) as i32;
    let man = (bits & ((1 << man_bits) - 1)) as f64;
    let bias = (1 << (exp_bits - 1)) - 1;
    let all_ones = (1 << exp_bits) - 1;
    if man_bits == 3 && bits & 0x7f == 0x7f {
        return f64::NAN;
    }
    if man_bits == 2 && exp == all_ones {
        return if man == 0.0 { sign * f64::INFINITY } else { f64::NAN };
    }
    if exp == 0 {
        sign * man * 2f64.powi(1 - bias - man_bits)
    } else {
        sign * (1.0 + man * 2f64.powi(-man_bits)) * 2f64.powi(exp - bias)
    }
}

/// Floats print as the shortest decimal that gives the value back, or as `bits(0x…)` for infinities and NaNs.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elem {
            Elem::Bool => write!(f, "{}", self.is_true()),
            e if e.is_float() => {
                let v = self.to_f64();
                if v.is_finite() && Scalar::from_f64(e, v) == *self {
                    write!(f, "{v:?}")
                } else {
                    write!(f, "bits({:#x})", self.bits)
                }
            }
            Elem::U64 => write!(f, "{}", self.bits),
            _ => write!(f, "{}", self.to_i64()),
        }
    }
}
