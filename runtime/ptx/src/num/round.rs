//! Correctly rounded arithmetic in every rounding mode and format, by exact integers.
//!
//! An operation gives its exact result as a [`Exact`]: sign, 128-bit magnitude with a sticky last bit, exponent. Rounding
//! to a [`Format`] is one function. This is slow (tens of nanoseconds) and serves the modes that the processor's own
//! round-to-nearest instructions do not.

/// How to round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// To nearest, ties to even.
    Rn,
    /// Towards zero.
    Rz,
    /// Towards minus infinity.
    Rm,
    /// Towards plus infinity.
    Rp,
    /// To nearest, ties away from zero.
    Rna,
}

/// A binary format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the significand, the implicit one included.
    pub precision: u32,
    /// Bits of the exponent.
    pub exponent: u32,
    /// Whether it has no infinity: e4m3, whose largest exponent holds numbers too and whose only NaN is all ones.
    pub finite: bool,
    /// The NaN that operations give.
    pub nan: u64,
}

impl Format {
    /// IEEE half.
    pub const F16: Format = Format { precision: 11, exponent: 5, finite: false, nan: 0x7fff };
    /// bfloat16.
    pub const BF16: Format = Format { precision: 8, exponent: 8, finite: false, nan: 0x7fff };
    /// IEEE single.
    pub const F32: Format = Format { precision: 24, exponent: 8, finite: false, nan: 0x7fff_ffff };
    /// IEEE double.
    pub const F64: Format = Format { precision: 53, exponent: 11, finite: false, nan: 0xfff8_0000_0000_0000 };
    /// 8-bit float, 4 exponent bits.
    pub const E4M3: Format = Format { precision: 4, exponent: 4, finite: true, nan: 0x7f };
    /// 8-bit float, 5 exponent bits.
    pub const E5M2: Format = Format { precision: 3, exponent: 5, finite: false, nan: 0x7f };
    /// tf32: as f32, 13 bits shorter.
    pub const TF32: Format = Format { precision: 11, exponent: 8, finite: false, nan: 0x3ffff };

    /// Bits of the whole format.
    pub const fn bits(self) -> u32 {
        self.precision + self.exponent
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Exponent of the last bit of the smallest subnormal.
    fn least(self) -> i32 {
        1 - self.bias() - (self.precision as i32 - 1)
    }

    fn fraction(self) -> u32 {
        self.precision - 1
    }

    /// The bits of infinity (or, without one, of NaN).
    fn infinity(self) -> u64 {
        ((1 << self.exponent) - 1) << self.fraction()
    }

    /// The bits of the largest finite number.
    pub fn largest(self) -> u64 {
        if self.finite { self.nan - 1 } else { self.infinity() - 1 }
    }
}

/// A number taken apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// No number.
    Nan,
    /// Infinity; true when negative.
    Infinity(bool),
    /// `(-1)^sign * magnitude * 2^exponent`, exact; zero keeps its sign.
    Finite(Exact),
}

/// `(-1)^negative * magnitude * 2^exponent`; `sticky` says that a little more (less than the last bit) was cut off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// Sign.
    pub negative: bool,
    /// Magnitude.
    pub magnitude: u128,
    /// Power of two of the magnitude's last bit.
    pub exponent: i32,
    /// Whether something non-zero was cut off below.
    pub sticky: bool,
}

/// Takes the bits of `format` apart.
pub fn unpack(bits: u64, format: Format) -> Value {
    let negative = bits >> (format.bits() - 1) & 1 == 1;
    let exponent = (bits >> format.fraction()) as i32 & ((1 << format.exponent) - 1);
    let fraction = bits & ((1 << format.fraction()) - 1);
    let top = (1 << format.exponent) - 1;
    if exponent == top && !format.finite {
        return if fraction == 0 { Value::Infinity(negative) } else { Value::Nan };
    }
    if format.finite && bits & format.nan == format.nan {
        return Value::Nan;
    }
    let (magnitude, exponent) = match exponent {
        0 => (fraction, format.least()),
        e => (fraction | 1 << format.fraction(), e - format.bias() - format.fraction() as i32),
    };
    Value::Finite(Exact { negative, magnitude: magnitude as u128, exponent, sticky: false })
}

/// Rounds to `format`; `saturate` gives the largest finite number in place of infinity.
pub fn pack(value: Value, format: Format, mode: Mode, saturate: bool) -> u64 {
    let sign = |negative: bool| (negative as u64) << (format.bits() - 1);
    let overflow = |negative: bool, to_infinity: bool| {
        sign(negative)
            | match (to_infinity && !saturate, format.finite) {
                (true, false) => format.infinity(),
                (true, true) => format.nan,
                (false, _) => format.largest(),
            }
    };
    let x = match value {
        Value::Nan => return format.nan,
        Value::Infinity(negative) => return overflow(negative, true),
        Value::Finite(x) => x,
    };
    if x.magnitude == 0 && !x.sticky {
        return sign(x.negative);
    }
    // The exponent of the result's last bit.
    let length = 128 - x.magnitude.leading_zeros() as i32;
    let last = (x.exponent + length - format.precision as i32).max(format.least());
    let drop = last - x.exponent;
    let (mut kept, half, rest) = if drop <= 0 {
        (x.magnitude << -drop, false, x.sticky)
    } else if drop > 128 {
        (0, false, true)
    } else {
        let half = x.magnitude >> (drop - 1) & 1 == 1;
        let below = x.magnitude & ((1u128 << (drop - 1)) - 1) != 0;
        let kept = if drop == 128 { 0 } else { x.magnitude >> drop };
        (kept, half, below || x.sticky)
    };
    let inexact = half || rest;
    let up = match mode {
        Mode::Rn => half && (rest || kept & 1 == 1),
        Mode::Rna => half,
        Mode::Rz => false,
        Mode::Rm => inexact && x.negative,
        Mode::Rp => inexact && !x.negative,
    };
    kept += up as u128;
    let to_infinity = match mode {
        Mode::Rn | Mode::Rna => true,
        Mode::Rz => false,
        Mode::Rm => x.negative,
        Mode::Rp => !x.negative,
    };
    // A subnormal's bits and a carry into the exponent both come out right by adding.
    let biased = (last - format.least()) as u64;
    let body = if kept >> format.fraction() == 0 {
        kept as u64
    } else {
        ((biased) << format.fraction()).saturating_add(kept as u64)
    };
    if body > format.largest() || biased > 1 << format.exponent {
        return overflow(x.negative, to_infinity);
    }
    sign(x.negative) | body
}

/// The sign of an exact zero sum of two different signs: minus only when rounding down.
fn zero(mode: Mode) -> Value {
    Value::Finite(Exact { negative: mode == Mode::Rm, magnitude: 0, exponent: 0, sticky: false })
}

fn finite(negative: bool, magnitude: u128, exponent: i32, sticky: bool) -> Value {
    Value::Finite(Exact { negative, magnitude, exponent, sticky })
}

/// The exact sum, of magnitudes below 2^106 each.
fn sum(a: Exact, b: Exact, mode: Mode) -> Value {
    if a.magnitude == 0 && b.magnitude == 0 {
        return if a.negative == b.negative { Value::Finite(a) } else { zero(mode) };
    }
    if a.magnitude == 0 {
        return Value::Finite(b);
    }
    if b.magnitude == 0 {
        return Value::Finite(a);
    }
    // Both to the left end (bit 125), so that the larger one is exact and the smaller one's lost bits are sticky.
    let raise = |x: Exact| {
        let shift = x.magnitude.leading_zeros() - 2;
        Exact { magnitude: x.magnitude << shift, exponent: x.exponent - shift as i32, ..x }
    };
    let (a, b) = (raise(a), raise(b));
    let (big, small) = if (a.exponent, a.magnitude) >= (b.exponent, b.magnitude) { (a, b) } else { (b, a) };
    let shift = (big.exponent - small.exponent) as u32;
    let (aligned, lost) = match shift {
        0 => (small.magnitude, false),
        1..=127 => (small.magnitude >> shift, small.magnitude & ((1 << shift) - 1) != 0),
        _ => (0, true),
    };
    if big.negative == small.negative {
        return finite(big.negative, big.magnitude + aligned, big.exponent, lost);
    }
    // With lost bits the true difference lies just below: one less, and sticky.
    let difference = big.magnitude - aligned - lost as u128;
    if difference == 0 && !lost { zero(mode) } else { finite(big.negative, difference, big.exponent, lost) }
}

/// `a + b`.
pub fn add(a: Value, b: Value, mode: Mode) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinity(x), Value::Infinity(y)) => {
            if x == y {
                a
            } else {
                Value::Nan
            }
        }
        (Value::Infinity(_), _) => a,
        (_, Value::Infinity(_)) => b,
        (Value::Finite(a), Value::Finite(b)) => sum(a, b, mode),
    }
}

/// `a * b`, exact (magnitudes below 2^64).
pub fn mul(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinity(s), Value::Finite(x)) | (Value::Finite(x), Value::Infinity(s)) => {
            if x.magnitude == 0 {
                Value::Nan
            } else {
                Value::Infinity(s != x.negative)
            }
        }
        (Value::Infinity(x), Value::Infinity(y)) => Value::Infinity(x != y),
        (Value::Finite(a), Value::Finite(b)) => {
            finite(a.negative != b.negative, a.magnitude * b.magnitude, a.exponent + b.exponent, false)
        }
    }
}

/// `a * b + c` with one rounding to come.
pub fn fma(a: Value, b: Value, c: Value, mode: Mode) -> Value {
    add(mul(a, b), c, mode)
}

/// `a / b`, to more bits than any format has, and sticky.
pub fn div(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) | (Value::Infinity(_), Value::Infinity(_)) => Value::Nan,
        (Value::Infinity(s), Value::Finite(x)) => Value::Infinity(s != x.negative),
        (Value::Finite(x), Value::Infinity(s)) => finite(s != x.negative, 0, 0, false),
        (Value::Finite(a), Value::Finite(b)) => {
            let negative = a.negative != b.negative;
            match (a.magnitude, b.magnitude) {
                (0, 0) => Value::Nan,
                (0, _) => finite(negative, 0, 0, false),
                (_, 0) => Value::Infinity(negative),
                (x, y) => {
                    let shift = x.leading_zeros();
                    let x = x << shift;
                    finite(negative, x / y, a.exponent - shift as i32 - b.exponent, x % y != 0)
                }
            }
        }
    }
}

/// The square root, to more bits than any format has, and sticky.
pub fn sqrt(a: Value) -> Value {
    match a {
        Value::Nan | Value::Infinity(true) => Value::Nan,
        Value::Infinity(false) => a,
        Value::Finite(x) if x.magnitude == 0 => a,
        Value::Finite(x) if x.negative => Value::Nan,
        Value::Finite(x) => {
            // An even exponent and a magnitude of 126 to 128 bits give a root of 63 or 64 bits.
            let mut shift = x.magnitude.leading_zeros() as i32;
            if (x.exponent - shift) & 1 != 0 {
                shift -= 1;
            }
            let magnitude = if shift < 0 { return Value::Nan } else { x.magnitude << shift };
            let root = magnitude.isqrt();
            finite(false, root, (x.exponent - shift) / 2, root * root != magnitude)
        }
    }
}

/// The nearest integer in a mode, as a magnitude with a sign; None when it exceeds 2^127.
pub fn to_integer(x: Exact, mode: Mode) -> Option<(bool, u128)> {
    if x.exponent >= 0 {
        let fits = x.magnitude == 0 || (x.magnitude.leading_zeros() as i32) > x.exponent;
        return fits.then(|| (x.negative, x.magnitude << x.exponent.min(127)));
    }
    let drop = -x.exponent as u32;
    let (kept, half, rest) = if drop > 128 {
        (0, false, x.magnitude != 0)
    } else {
        let kept = if drop == 128 { 0 } else { x.magnitude >> drop };
        (kept, x.magnitude >> (drop - 1) & 1 == 1, x.magnitude & ((1 << (drop - 1)) - 1) != 0)
    };
    let up = match mode {
        Mode::Rn => half && (rest || kept & 1 == 1),
        Mode::Rna => half,
        Mode::Rz => false,
        Mode::Rm => (half || rest) && x.negative,
        Mode::Rp => (half || rest) && !x.negative,
    };
    Some((x.negative, kept + up as u128))
}

/// An f32 taken apart.
pub fn f32_value(x: f32) -> Value {
    unpack(x.to_bits() as u64, Format::F32)
}

/// An f64 taken apart.
pub fn f64_value(x: f64) -> Value {
    unpack(x.to_bits(), Format::F64)
}

/// Rounds to f32.
pub fn to_f32(x: Value, mode: Mode) -> f32 {
    f32::from_bits(pack(x, Format::F32, mode, false) as u32)
}

/// Rounds to f64.
pub fn to_f64(x: Value, mode: Mode) -> f64 {
    f64::from_bits(pack(x, Format::F64, mode, false))
}
