//! Canonicalisation: one form for what can be written in many ways, and less of it.
//!
//! Constants are folded, identities applied that are exact under the language's meaning (wrapping integers, signed
//! zeros, NaN), shapes composed, casts merged, control flow with known conditions unfolded. Rules live beside what
//! they are about; each is a function from an op to an equal value.

mod arith;
pub(super) use arith::exchanged;
mod cast;
pub(super) mod control;
mod shape;

use super::{
    fold::fold,
    rewrite::{Rewriter, Rule},
};
use crate::{
    attr::Key,
    kernel::{Kernel, Op, Value},
    ops::OpKind,
    scalar::Scalar,
};

/// Tried in this order on every op with one result.
const RULES: &[Rule] = &[
    constants,
    narrow,
    arith::select,
    arith::unary,
    arith::binary,
    arith::fma,
    cast::cast,
    cast::bitcast,
    shape::broadcast,
    shape::reshape,
    shape::permute,
    shape::slice,
    shape::cat,
    multiple_of_one,
    dim_of_narrow,
];

/// Sweeps are repeated while they change something; a bound keeps a mistake in the rules from becoming a hang.
const SWEEPS: usize = 32;

pub(super) fn run(kernel: &mut Kernel) -> bool {
    let mut changed = false;
    for _ in 0..SWEEPS {
        if !Rewriter::sweep(kernel, RULES) {
            break;
        }
        changed = true;
    }
    changed
}

/// An elementwise op of constants is a constant.
fn constants(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    if !op.kind.is_elementwise() {
        return None;
    }
    let operands: Vec<Scalar> = op.operands.iter().map(|&v| cx.as_const(v)).collect::<Option<_>>()?;
    let ty = cx.tile(op.result())?.clone();
    let folded = fold(op.kind, &operands, ty.elem)?;
    Some(cx.constant(folded, &ty.shape, &op.loc))
}

/// An elementwise op of broadcasts from one shape is computed in that shape and then broadcast.
fn narrow(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    if !op.kind.is_elementwise() {
        return None;
    }
    let ty = cx.tile(op.result())?.clone();
    let mut source: Option<Vec<usize>> = None;
    for &v in &op.operands {
        if cx.as_const(v).is_some() {
            continue;
        }
        let shape = cx.tile(cx.def_of(v, OpKind::Broadcast)?.operands[0])?.shape.clone();
        if *source.get_or_insert(shape.clone()) != shape {
            return None;
        }
    }
    let source = source?;
    let mut operands = vec![];
    for &v in &op.operands {
        operands.push(match (cx.as_const(v), cx.def_of(v, OpKind::Broadcast)) {
            (Some(s), _) => cx.constant(s, &source, &op.loc),
            (None, d) => d?.operands[0],
        });
    }
    let mut small = ty.clone();
    small.shape = source;
    let v = cx.emit(op.kind, &operands, small, op.attrs.clone(), &op.loc);
    Some(cx.plain(OpKind::Broadcast, &[v], ty, &op.loc))
}

fn multiple_of_one(_: &mut Rewriter, op: &Op) -> Option<Value> {
    let one = op.kind == OpKind::MultipleOf && op.attrs.int(Key::N) == Some(1);
    one.then(|| op.operands[0])
}

/// Narrowing a view leaves its other axes as they are.
fn dim_of_narrow(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    if op.kind != OpKind::Dim {
        return None;
    }
    let narrow = cx.def_of(op.operands[0], OpKind::Narrow)?;
    let ty = cx.tile(op.result())?.clone();
    let other = op.attrs.int(Key::Axis) != narrow.attrs.int(Key::Axis);
    other.then(|| cx.emit(OpKind::Dim, &narrow.operands[..1], ty, op.attrs.clone(), &op.loc))
}
