//! Number formats: what results are, and how to make operands of a value.

use std::sync::LazyLock;

/// What a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bits without a value, so many a result.
    Bits(u32),
    /// A float of so many bits of exponent and of fraction. A format without infinities has one NaN, all bits but the sign.
    Float {
        /// Bits of the exponent.
        exponent: u32,
        /// Bits of the fraction.
        fraction: u32,
        /// There are infinities.
        infinities: bool,
    },
}

/// IEEE's half precision.
pub const F16: Unit = Unit::Float { exponent: 5, fraction: 10, infinities: true };
/// The upper half of an f32.
pub const BF16: Unit = Unit::Float { exponent: 8, fraction: 7, infinities: true };
/// Single precision.
pub const F32: Unit = Unit::Float { exponent: 8, fraction: 23, infinities: true };
/// Double precision.
pub const F64: Unit = Unit::Float { exponent: 11, fraction: 52, infinities: true };
/// 8 bits for weights.
pub const E4M3: Unit = Unit::Float { exponent: 4, fraction: 3, infinities: false };
/// 8 bits for gradients.
pub const E5M2: Unit = Unit::Float { exponent: 5, fraction: 2, infinities: true };

impl Unit {
    /// Bits of a result.
    pub fn bits(self) -> u32 {
        match self {
            Unit::Bits(n) => n,
            Unit::Float { exponent, fraction, .. } => 1 + exponent + fraction,
        }
    }

    /// Not a number.
    pub fn is_nan(self, bits: u64) -> bool {
        let Unit::Float { exponent, fraction, infinities } = self else { return false };
        let magnitude = bits & ((1 << (exponent + fraction)) - 1);
        let infinity = ((1u64 << exponent) - 1) << fraction;
        if infinities { magnitude > infinity } else { magnitude == (1 << (exponent + fraction)) - 1 }
    }

    /// Neither a number nor an infinity.
    pub fn is_finite(self, bits: u64) -> bool {
        let Unit::Float { exponent, fraction, infinities } = self else { return true };
        let magnitude = bits & ((1 << (exponent + fraction)) - 1);
        if infinities { magnitude < ((1u64 << exponent) - 1) << fraction } else { !self.is_nan(bits) }
    }

    /// The value of a finite pattern.
    pub fn value(self, bits: u64) -> f64 {
        let Unit::Float { exponent, fraction, .. } = self else { return bits as f64 };
        let bias = (1i32 << (exponent - 1)) - 1;
        let e = (bits >> fraction & ((1 << exponent) - 1)) as i32;
        let f = (bits & ((1 << fraction) - 1)) as f64 / (1u64 << fraction) as f64;
        let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
        sign * if e == 0 { f * 2f64.powi(1 - bias) } else { (1.0 + f) * 2f64.powi(e - bias) }
    }

    /// A place on a line on which neighbouring numbers are 1 apart; both zeros are 0.
    fn place(self, bits: u64) -> i128 {
        let top = 1u64 << (self.bits() - 1);
        let magnitude = i128::from(bits & (top - 1));
        if bits & top == 0 { magnitude } else { -magnitude }
    }

    /// Units in the last place between two numbers; for bits the difference as integers.
    pub fn distance(self, a: u64, b: u64) -> u64 {
        let d = match self {
            Unit::Bits(_) => i128::from(a) - i128::from(b),
            Unit::Float { .. } => self.place(a) - self.place(b),
        };
        d.unsigned_abs() as u64
    }
}

/// The type of a matrix operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Its name in PTX.
    pub name: &'static str,
    /// Bytes in a register or in memory.
    pub bytes: usize,
}

/// bf16.
pub const A_BF16: Operand = Operand { name: "bf16", bytes: 2 };
/// f16.
pub const A_F16: Operand = Operand { name: "f16", bytes: 2 };
/// tf32, in the upper 19 bits of a word.
pub const A_TF32: Operand = Operand { name: "tf32", bytes: 4 };
/// fp8 e4m3.
pub const A_E4M3: Operand = Operand { name: "e4m3", bytes: 1 };
/// fp8 e5m2.
pub const A_E5M2: Operand = Operand { name: "e5m2", bytes: 1 };
/// Signed bytes.
pub const A_S8: Operand = Operand { name: "s8", bytes: 1 };
/// Unsigned bytes.
pub const A_U8: Operand = Operand { name: "u8", bytes: 1 };

/// All numbers of an 8-bit format, rising.
type Values = LazyLock<Vec<(f64, u32)>>;
static E4M3_VALUES: Values = LazyLock::new(|| values(E4M3));
static E5M2_VALUES: Values = LazyLock::new(|| values(E5M2));

fn values(unit: Unit) -> Vec<(f64, u32)> {
    let finite = (0..256).filter(|b| unit.is_finite(*b));
    let mut all: Vec<(f64, u32)> = finite.map(|b| (unit.value(b), b as u32)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

fn nearest(values: &[(f64, u32)], value: f64) -> u32 {
    let at = values.partition_point(|v| v.0 < value);
    let around = values[at.saturating_sub(1)..(at + 1).min(values.len())].iter();
    around.min_by(|a, b| (a.0 - value).abs().total_cmp(&(b.0 - value).abs())).map_or(0, |v| v.1)
}

impl Operand {
    /// As a number format; none for integers.
    pub fn unit(self) -> Option<Unit> {
        Some(match self.name {
            "bf16" => BF16,
            "f16" => F16,
            "tf32" => F32,
            "e4m3" => E4M3,
            "e5m2" => E5M2,
            _ => return None,
        })
    }

    /// The pattern nearest to a value, which is in the type's range.
    pub fn encode(self, value: f64) -> u32 {
        match self.name {
            "bf16" => u32::from(half::bf16::from_f64(value).to_bits()),
            "f16" => u32::from(half::f16::from_f64(value).to_bits()),
            "tf32" => (value as f32).to_bits() & !0x1fff,
            "s8" => u32::from(value as i8 as u8),
            "u8" => u32::from(value as u8),
            _ => nearest(if self.name == "e4m3" { &E4M3_VALUES } else { &E5M2_VALUES }, value),
        }
    }

    /// Exponents of the smallest and of the largest power of two.
    pub fn exponents(self) -> (i32, i32) {
        match self.name {
            "bf16" | "tf32" => (-126, 127),
            "f16" => (-14, 15),
            "e4m3" => (-6, 8),
            "e5m2" => (-14, 15),
            _ => (0, 6),
        }
    }
}
