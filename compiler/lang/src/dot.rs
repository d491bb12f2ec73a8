//! Matrix products of tiles.

use crate::context;
use crate::dim::Dim;
use crate::elem::{Elem, Float};
use crate::packed::QTile;
use crate::shape::{DotWith, Shape};
use crate::tile::Tile;
use tegula_ir::{Attrs, Elem as IrElem, Key, OpKind, Quant, Type};

pub use tegula_ir::Precision;

/// An element type whose products `dot` adds up in `Acc`: floats in f32, f64 in f64, i8 and u8 in i32.
#[diagnostic::on_unimplemented(
    message = "there is no `dot` of `{Self}` tiles that adds up in `{Acc}`",
    label = "wrong element type for this accumulator",
    note = "`dot` of f32, f16, bf16, f8e4m3 or f8e5m2 adds up in f32, of f64 in f64, of i8 or u8 in i32"
)]
pub trait DotInto<Acc>: Elem {}
impl<T: Float> DotInto<f32> for T {}
impl DotInto<f64> for f64 {}
impl DotInto<i32> for i8 {}
impl DotInto<i32> for u8 {}

/// `a · b + acc`: (M, K)·(K, N) + (M, N). f32: per output one chain of fused multiply-adds in ascending k. f16, bf16 and
/// 8-bit floats accumulate in f32, f64 in f64, integers in i32 exactly.
#[track_caller]
pub fn dot<A: DotInto<Acc>, Acc: Elem, S: Shape + DotWith<R>, R: Shape>(
    a: Tile<A, S>,
    b: Tile<A, R>,
    acc: Tile<Acc, S::Product>,
) -> Tile<Acc, S::Product> {
    if A::ELEM == IrElem::F64 && Acc::ELEM != IrElem::F64 {
        // A generic kernel accumulates in f32, which is too narrow for f64.
        context::fault("`dot` of `f64` adds up in `f64`, found an accumulator of `f32`");
        return acc;
    }
    Tile::new(context::emit(
        OpKind::Dot,
        &[a.handle(), b.handle(), acc.handle()],
        context::ty(acc.handle()),
        Attrs::new(),
    ))
}

/// As [`dot`], for f32 with leave to multiply less precisely than f32 does. Where a target has no such instructions in use it
/// multiplies in f32 (and a remark of the compiler says so).
#[track_caller]
pub fn dot_with_precision<S: Shape + DotWith<R>, R: Shape>(
    precision: Precision,
    a: Tile<f32, S>,
    b: Tile<f32, R>,
    acc: Tile<f32, S::Product>,
) -> Tile<f32, S::Product> {
    let attrs = Attrs::new().with(Key::Precision, precision.into());
    Tile::new(context::emit(OpKind::Dot, &[a.handle(), b.handle(), acc.handle()], context::ty(acc.handle()), attrs))
}

/// The quantised product: activations as `i8` codes (M, K) with one f32 scale and one i32 sum of codes per 32 of them
/// (M, K/32), times a quantised tile (K, N), plus `acc` (M, N). Per output, groups in ascending k: the integer product
/// is exact, then `fma(f32(i), sw·sx, acc)`; formats with a minimum m then add `fma(f32(sum), m·sx, acc)`.
#[track_caller]
pub fn dot_grouped<Q, M: Dim, K: Dim, G: Dim, N: Dim>(
    codes: Tile<i8, (M, K)>,
    scales: Tile<f32, (M, G)>,
    sums: Tile<i32, (M, G)>,
    weights: QTile<Q, (K, N)>,
    acc: Tile<f32, (M, N)>,
) -> Tile<f32, (M, N)> {
    let (k, groups) = (K::extent(), G::extent());
    let quant = match context::ty(weights.handle()) {
        Type::QTile(t) => t.quant,
        _ => Quant::Q8_0,
    };
    if groups * 32 != k {
        context::fault(format!(
            "`dot_grouped` over {k} elements takes {} scales and sums a row (one per 32), found {groups}",
            k.div_ceil(32)
        ));
        return acc;
    }
    if quant.is_float() {
        context::fault(format!(
            "`dot_grouped` of a packed `{quant}`, which has no codes: use `dot(x, w.dequant(), acc)`"
        ));
        return acc;
    }
    let operands = [codes.handle(), scales.handle(), sums.handle(), weights.handle(), acc.handle()];
    Tile::new(context::emit(OpKind::DotGrouped, &operands, context::ty(acc.handle()), Attrs::new()))
}
