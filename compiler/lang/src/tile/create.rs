//! Tiles out of nothing.

use super::{Operand, Scalar, Tile, broadcast_to};
use crate::context;
use crate::dim::Dim;
use crate::elem::{Elem, Int, Num};
use crate::shape::Shape;
use tegula_ir::{Attrs, OpKind, Scalar as Bits, Type};

/// All elements 0 (`false` for bool). `zeros::<f32, (BM, BN)>()`.
#[track_caller]
pub fn zeros<T: Elem, S: Shape>() -> Tile<T, S> {
    Tile::new(context::constant(Bits::zero(T::ELEM), &S::extents()))
}

/// All elements `value`. `full::<f32, (BM, One)>(f32::NEG_INFINITY)`.
#[track_caller]
pub fn full<T: Elem, S: Shape>(value: impl Operand<T, Shape = ()>) -> Tile<T, S> {
    let v = value.to_handle();
    Tile::new(broadcast_to(v, &S::extents()))
}

/// A compile-time number as a run-time scalar, so that run-time loops and branches may change it:
/// `let mut sum = scalar(0.0);`
#[track_caller]
pub fn scalar<T: Elem>(value: impl Operand<T, Shape = ()>) -> Scalar<T> {
    Tile::new(value.to_handle())
}

/// A host value of any element type as a run-time scalar.
#[track_caller]
pub fn constant<T: Elem>(value: T) -> Scalar<T> {
    Tile::new(context::constant(Bits::from_bits(T::ELEM, value.bits()), &[]))
}

/// 0, 1, 2, … as `i32`: `iota::<BN>()` has shape `(BN,)`.
#[track_caller]
pub fn iota<D: Dim>() -> Tile<i32, (D,)> {
    iota_of::<i32, D>()
}

/// 0, 1, 2, … of any integer type, wrapping.
#[track_caller]
pub fn iota_of<T: Int, D: Dim>() -> Tile<T, (D,)> {
    Tile::new(context::emit(OpKind::Iota, &[], Type::tile(T::ELEM, <(D,)>::extents()), Attrs::new()))
}

/// The number below or equal to every other: −∞ for floats (the least finite for `f8e4m3`), `MIN` for integers.
#[track_caller]
pub fn lowest<T: Num>() -> Scalar<T> {
    Tile::new(context::constant(extreme(T::ELEM, true), &[]))
}

/// The number above or equal to every other: ∞ for floats (the largest finite for `f8e4m3`), `MAX` for integers.
#[track_caller]
pub fn highest<T: Num>() -> Scalar<T> {
    Tile::new(context::constant(extreme(T::ELEM, false), &[]))
}

fn extreme(elem: tegula_ir::Elem, low: bool) -> Bits {
    use tegula_ir::Elem::*;
    let sign = |bits: u64, width: u32| if low { bits | 1 << (width - 1) } else { bits };
    let bits = match elem {
        F64 => sign(f64::INFINITY.to_bits(), 64),
        F32 => sign(f32::INFINITY.to_bits() as u64, 32),
        F16 => sign(0x7c00, 16),
        BF16 => sign(0x7f80, 16),
        F8E4M3 => sign(0x7e, 8),
        F8E5M2 => sign(0x7c, 8),
        e if e.is_signed() => (1u64 << (e.bits() - 1)).wrapping_sub(!low as u64),
        Bool => !low as u64,
        _ if low => 0,
        _ => u64::MAX,
    };
    Bits::from_bits(elem, bits)
}
