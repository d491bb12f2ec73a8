//! Host values of the 8-bit floats.

use tegula_ir::{Elem, Scalar};

macro_rules! float8 { ($($(#[$doc:meta])* $name:ident $elem:ident;)*) => {$(
    $(#[$doc])*
    #[allow(non_camel_case_types)]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct $name(u8);
    impl $name {
        /// From the bit pattern.
        pub const fn from_bits(bits: u8) -> Self { $name(bits) }
        /// The bit pattern.
        pub const fn to_bits(self) -> u8 { self.0 }
        /// Rounds once to nearest even; what is too large becomes the largest finite value, NaN stays NaN.
        pub fn from_f64(v: f64) -> Self { $name(Scalar::from_f64(Elem::$elem, v).bits as u8) }
        /// As [`Self::from_f64`].
        pub fn from_f32(v: f32) -> Self { Self::from_f64(v as f64) }
        /// The value, exactly.
        pub fn to_f32(self) -> f32 { Scalar::from_bits(Elem::$elem, self.0 as u64).to_f64() as f32 }
    }
)*} }

float8! {
    /// 4 exponent bits, 3 mantissa bits, no infinity, largest value 448.
    f8e4m3 F8E4M3;
    /// 5 exponent bits, 2 mantissa bits, largest finite value 57344.
    f8e5m2 F8E5M2;
}
