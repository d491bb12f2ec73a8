//! Elements of tensor-core operands: how their bits become numbers that the products are computed in.
//!
//! Floats are widened to f32, which is exact for all of them; 8-bit integers to i32. Products of a chain are added by
//! [`Value::madd`]: one fused multiply-add in f32 (or f64), so a sum of K products is a chain of K roundings in
//! ascending k that starts from the accumulator. Tensor cores add several products before they round and do not say how;
//! the chain stays within the same error bound, and it is the order that the language's `dot` on f32 uses.

use super::small::{NAN32, bf16_to_f32, e4m3_to_f32, e5m2_to_f32, f16_to_f32, tf32_truncate};

/// What products are computed in.
pub trait Value: Copy + Default + Send + Sync + 'static {
    /// `a * b + c`, rounded once.
    fn madd(a: Self, b: Self, c: Self) -> Self;
    /// As the result register shows it: f32 NaNs become the canonical one.
    fn finish(self) -> Self;
    /// The negative.
    fn negate(self) -> Self;
}

impl Value for f32 {
    #[inline(always)]
    fn madd(a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn finish(self) -> f32 {
        if self.is_nan() { NAN32 } else { self }
    }
    #[inline(always)]
    fn negate(self) -> f32 {
        -self
    }
}

impl Value for f64 {
    #[inline(always)]
    fn madd(a: f64, b: f64, c: f64) -> f64 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn finish(self) -> f64 {
        if self.is_nan() { f64::from_bits(0xfff8_0000_0000_0000) } else { self }
    }
    #[inline(always)]
    fn negate(self) -> f64 {
        -self
    }
}

impl Value for i32 {
    #[inline(always)]
    fn madd(a: i32, b: i32, c: i32) -> i32 {
        a.wrapping_mul(b).wrapping_add(c)
    }
    #[inline(always)]
    fn finish(self) -> i32 {
        self
    }
    #[inline(always)]
    fn negate(self) -> i32 {
        self.wrapping_neg()
    }
}

/// An element type of 8, 16 or 32 bits.
pub trait Element: Send + Sync + 'static {
    /// What it becomes.
    type V: Value;
    /// Its size.
    const BYTES: usize;
    /// From its bits; those above it are ignored.
    fn get(bits: u32) -> Self::V;
}

macro_rules! elements {
    ($($(#[$doc:meta])* $name:ident: $v:ty, $bytes:literal, $b:ident => $get:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Element for $name {
            type V = $v;
            const BYTES: usize = $bytes;
            #[inline(always)]
            fn get($b: u32) -> $v { $get }
        }
    )*};
}
elements! {
    /// bfloat16.
    Bf16: f32, 2, b => bf16_to_f32(b as u16);
    /// IEEE half.
    F16: f32, 2, b => f16_to_f32(b as u16);
    /// The upper 19 bits of an f32.
    Tf32: f32, 4, b => tf32_truncate(f32::from_bits(b));
    /// 8-bit float, 4 exponent bits.
    E4m3: f32, 1, b => e4m3_to_f32(b as u8);
    /// 8-bit float, 5 exponent bits.
    E5m2: f32, 1, b => e5m2_to_f32(b as u8);
    /// Signed byte.
    S8: i32, 1, b => b as i8 as i32;
    /// Unsigned byte.
    U8: i32, 1, b => b as u8 as i32;
}
