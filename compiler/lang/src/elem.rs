//! Element types as Rust types, and which constants may stand beside a tile of them.

use crate::float8::{f8e4m3, f8e5m2};
use half::{bf16, f16};
use std::fmt::Debug;
use tegula_ir::{Elem as E, Scalar as Bits};

/// Only the language has element types: tensors hand out slices of them, so every bit pattern they keep must be a value.
mod sealed {
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be made an element type of tiles",
        note = "element types are f64, f32, f16, bf16, f8e4m3, f8e5m2, i8 to i64, u8 to u64 and bool, and no others"
    )]
    pub trait Sealed {}
}

/// An element type: what one element of a tile is. `f64 f32 f16 bf16 f8e4m3 f8e5m2 i8 i16 i32 i64 u8 u16 u32 u64 bool`,
/// and no others.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of tiles",
    note = "element types are f64, f32, f16, bf16, f8e4m3, f8e5m2, i8 to i64, u8 to u64 and bool"
)]
pub trait Elem: sealed::Sealed + Copy + Debug + Send + Sync + 'static {
    /// The type in the IR.
    const ELEM: E;
    /// The bit pattern of a host value, zero-extended.
    fn bits(self) -> u64;
    /// From a bit pattern.
    fn from_bits(bits: u64) -> Self;
}

/// A float or an integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number element type",
    note = "numbers are the floats and the integers, not `bool`"
)]
pub trait Num: Elem {}

/// `f64 f32 f16 bf16 f8e4m3 f8e5m2`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float element type",
    note = "convert first: `x.cast::<f32>()`"
)]
pub trait Float: Num {}

/// `i8 i16 i32 i64 u8 u16 u32 u64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer element type",
    note = "convert first: `x.cast::<i32>()`"
)]
pub trait Int: Num {}

/// A number that memory can be changed by atomically with arithmetic: all but those of 8 bits.
#[diagnostic::on_unimplemented(
    message = "there are no atomic `add`, `max` and `min` on `{Self}`",
    note = "they work on numbers of 16 bits and more: `f16 bf16 f32 f64`, `i16 i32 i64`, `u16 u32 u64`"
)]
pub trait AtomicNum: Num {}
macro_rules! atomic { ($($t:ident)*) => { $(impl AtomicNum for $t {})* } }
atomic! { f16 bf16 f32 f64 i16 i32 i64 u16 u32 u64 }

/// What bitwise operators work on: the integers and `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no bitwise operators",
    note = "integers and `bool` have; for a float's bits use `bitcast`"
)]
pub trait Bitwise: Elem {}

macro_rules! elems { ($($t:ident $elem:ident $kind:ident, |$v:ident| $bits:expr, |$b:ident| $from:expr;)*) => {$(
    impl sealed::Sealed for $t {}
    impl Elem for $t {
        const ELEM: E = E::$elem;
        fn bits(self) -> u64 { let $v = self; $bits }
        fn from_bits($b: u64) -> Self { $from }
    }
    elems!(@$kind $t);
)*};
    (@Float $t:ident) => { impl Num for $t {} impl Float for $t {} };
    (@Int $t:ident) => { impl Num for $t {} impl Int for $t {} impl Bitwise for $t {} };
    (@Bool $t:ident) => { impl Bitwise for $t {} };
}

elems! {
    f64 F64 Float, |v| v.to_bits(), |b| f64::from_bits(b);
    f32 F32 Float, |v| v.to_bits() as u64, |b| f32::from_bits(b as u32);
    f16 F16 Float, |v| v.to_bits() as u64, |b| f16::from_bits(b as u16);
    bf16 BF16 Float, |v| v.to_bits() as u64, |b| bf16::from_bits(b as u16);
    f8e4m3 F8E4M3 Float, |v| v.to_bits() as u64, |b| f8e4m3::from_bits(b as u8);
    f8e5m2 F8E5M2 Float, |v| v.to_bits() as u64, |b| f8e5m2::from_bits(b as u8);
    i8 I8 Int, |v| v as u8 as u64, |b| b as i8;
    i16 I16 Int, |v| v as u16 as u64, |b| b as i16;
    i32 I32 Int, |v| v as u32 as u64, |b| b as i32;
    i64 I64 Int, |v| v as u64, |b| b as i64;
    u8 U8 Int, |v| v as u64, |b| b as u8;
    u16 U16 Int, |v| v as u64, |b| b as u16;
    u32 U32 Int, |v| v as u64, |b| b as u32;
    u64 U64 Int, |v| v, |b| b;
    bool Bool Bool, |v| v as u64, |b| b != 0;
}

/// A host integer as an element value, or what is wrong with it.
pub(crate) fn int_constant(elem: E, v: i128) -> Result<Bits, String> {
    let bits = elem.bits();
    let (lo, hi) =
        if elem.is_signed() { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
    if !(lo..=hi).contains(&v) {
        return Err(format!("the constant {v} does not fit `{elem}`, which holds {lo} to {hi}"));
    }
    Ok(Bits::from_bits(elem, v as u64))
}
