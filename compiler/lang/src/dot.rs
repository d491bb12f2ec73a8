//! Matrix products of tiles.

use crate::context;
use crate::dim::Dim;
use crate::elem::Elem;
use crate::float8::{f8e4m3, f8e5m2};
use crate::packed::QTile;
use crate::shape::{DotWith, Shape};
use crate::tile::Tile;
use half::{bf16, f16};
use tegula_ir::{Attrs, Key, OpKind, Quant, Type};

pub use tegula_ir::Precision;

/// An element type that has a `dot`, and the type in which it accumulates.
#[diagnostic::on_unimplemented(
    message = "there is no `dot` of `{Self}` tiles",
    note = "`dot` takes f64, f32, f16, bf16, f8e4m3, f8e5m2 (accumulated in f32, f64 in f64), i8 and u8 (accumulated in i32)"
)]
pub trait DotElem: Elem {
    /// The accumulator's element type.
    type Acc: Elem;
}
macro_rules! accumulators { ($($t:ty => $acc:ty;)*) => {$( impl DotElem for $t { type Acc = $acc; } )*} }
accumulators! { f64 => f64; f32 => f32; f16 => f32; bf16 => f32; f8e4m3 => f32; f8e5m2 => f32; i8 => i32; u8 => i32; }

/// `a · b + acc`: (M, K)·(K, N) + (M, N). f32: per output one chain of fused multiply-adds in ascending k. f16, bf16 and
/// 8-bit floats accumulate in f32, integers in i32 exactly.
#[track_caller]
pub fn dot<A: DotElem, S: Shape + DotWith<R>, R: Shape>(
    a: Tile<A, S>,
    b: Tile<A, R>,
    acc: Tile<A::Acc, S::Product>,
) -> Tile<A::Acc, S::Product> {
    Tile::new(context::emit(
        OpKind::Dot,
        &[a.handle(), b.handle(), acc.handle()],
        context::ty(acc.handle()),
        Attrs::new(),
    ))
}

/// As [`dot`], for f32 with a precision other than exact f32 products.
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
