//! Elementwise ops on registers: scalars and vectors of [`machine::carrier`](super::machine::carrier) types.
//!
//! Floats below f32 are computed in f32 and rounded: for + − × ÷ √ and everything exact that gives the correctly rounded
//! result, as f32 has more than twice their digits. `fma` does not fit that rule and has code of its own.

use super::{
    super::arith::{float_compare, integer, keep_nan},
    build::{Build, Cmp, V},
    convert::{self, narrow, widen},
    cx::Cx,
    machine::carrier,
    math,
};
use tegula_ir::{Elem, Op, OpKind, protocol::SiteKind};

/// The result of an elementwise op (`Assume`-like passes through: `multiple_of`). `from` are the operands' element types,
/// `to` the result's.
pub fn apply<'c>(cx: &mut Cx<'_, 'c>, op: &Op, from: &[Elem], to: Elem, x: &[V<'c>]) -> V<'c> {
    let b = cx.b;
    match op.kind {
        OpKind::Cast => convert::cast(b, x[0], from[0], to),
        OpKind::Bitcast => b.bitcast(x[0], carrier(b, to)),
        OpKind::Select => b.select(x[0], x[1], x[2]),
        OpKind::MultipleOf => x[0],
        _ if from[0].is_float() => float(cx, op.kind, from[0], x),
        OpKind::Div | OpKind::Rem => {
            if cx.checked {
                check_division(cx, op, from[0], x);
            }
            divide(b, op.kind, from[0], x[0], x[1])
        }
        _ => integer(b, op.kind, from[0], x),
    }
}

fn float<'c>(cx: &mut Cx<'_, 'c>, kind: OpKind, e: Elem, x: &[V<'c>]) -> V<'c> {
    let b = cx.b;
    if let Some(how) = float_compare(kind) {
        return b.cmpf(how, widen(b, x[0], e), widen(b, x[1], e));
    }
    if e.bits() < 32 {
        let sign = 1i64 << (e.bits() - 1);
        let as_bits = |x| b.bitcast(x, b.int(e.bits()));
        return match kind {
            OpKind::Neg => b.bitcast(b.xor(as_bits(x[0]), b.int_like(as_bits(x[0]), sign)), carrier(b, e)),
            OpKind::Abs => b.bitcast(b.and(as_bits(x[0]), b.int_like(as_bits(x[0]), sign - 1)), carrier(b, e)),
            OpKind::Fma => convert::fma_small(b, e, x),
            _ => {
                let wide: Vec<V> = x.iter().map(|v| widen(b, *v, e)).collect();
                let y = float(cx, kind, Elem::F32, &wide);
                narrow(b, y, e)
            }
        };
    }
    match kind {
        OpKind::Neg => b.negf(x[0]),
        OpKind::Abs => b.absf(x[0]),
        OpKind::Sqrt => b.sqrt(x[0]),
        OpKind::Floor => b.floor(x[0]),
        OpKind::Ceil => b.ceil(x[0]),
        OpKind::Round => b.round_even(x[0]),
        OpKind::Add => b.addf(x[0], x[1]),
        OpKind::Sub => b.subf(x[0], x[1]),
        OpKind::Mul => b.mulf(x[0], x[1]),
        OpKind::Div => b.divf(x[0], x[1]),
        OpKind::Rem => b.remf(x[0], x[1]),
        OpKind::Min => b.minnumf(x[0], x[1]),
        OpKind::Max => b.maxnumf(x[0], x[1]),
        OpKind::MinNan => keep_nan(b, x, b.minnumf(x[0], x[1])),
        OpKind::MaxNan => keep_nan(b, x, b.maxnumf(x[0], x[1])),
        OpKind::Fma => b.fma(x[0], x[1], x[2]),
        _ => math::apply(cx, kind, e, x),
    }
}

fn least<'c>(b: &Build<'c>, e: Elem, like: V<'c>) -> V<'c> {
    b.constant_bits(b.elem(like), 1 << (e.bits() - 1), b.lanes(like))
}

/// x / 0 = 0, x % 0 = x, MIN / −1 = MIN: the divisor is made harmless first.
fn divide<'c>(b: &Build<'c>, kind: OpKind, e: Elem, x: V<'c>, y: V<'c>) -> V<'c> {
    let (zero, one) = (b.int_like(y, 0), b.int_like(y, 1));
    let by_zero = b.cmp(Cmp::Eq, y, zero);
    let mut unsafe_divisor = by_zero;
    if e.is_signed() {
        let overflow = b.and(b.cmp(Cmp::Eq, x, least(b, e, x)), b.cmp(Cmp::Eq, y, b.int_like(y, -1)));
        unsafe_divisor = b.or(by_zero, overflow);
    }
    let d = b.select(unsafe_divisor, one, y);
    match (kind, e.is_signed()) {
        (OpKind::Div, true) => b.select(by_zero, zero, b.divs(x, d)),
        (OpKind::Div, false) => b.select(by_zero, zero, b.divu(x, d)),
        (_, true) => b.select(by_zero, x, b.rems(x, d)),
        (_, false) => b.select(by_zero, x, b.remu(x, d)),
    }
}

/// Checked launches report divisions by zero and MIN / −1; the value is the divisor.
fn check_division<'c>(cx: &mut Cx<'_, 'c>, op: &Op, e: Elem, x: &[V<'c>]) {
    let b = cx.b;
    let mut bad = b.cmp(Cmp::Eq, x[1], b.int_like(x[1], 0));
    if e.is_signed() {
        let overflow = b.and(b.cmp(Cmp::Eq, x[0], least(b, e, x[0])), b.cmp(Cmp::Eq, x[1], b.int_like(x[1], -1)));
        bad = b.or(bad, overflow);
    }
    let any = b.any(bad);
    let site = cx.site(SiteKind::Division, "integer division by zero or overflow", op);
    let value = b.zext(b.bitcast(if b.lanes(x[1]) == 0 { x[1] } else { b.extract(x[1], 0) }, b.int(e.bits())), b.i64());
    b.when(any, || cx.report(site, value));
}

/// What an atomic on floats stores: `old` with `x` added, or the larger or smaller of the two.
pub fn accumulate<'c>(cx: &mut Cx<'_, 'c>, kind: tegula_ir::AtomicKind, e: Elem, old: V<'c>, x: V<'c>) -> V<'c> {
    let op = match kind {
        tegula_ir::AtomicKind::Max => OpKind::Max,
        tegula_ir::AtomicKind::Min => OpKind::Min,
        _ => OpKind::Add,
    };
    float(cx, op, e, &[old, x])
}
