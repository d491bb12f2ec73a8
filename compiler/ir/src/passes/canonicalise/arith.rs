//! Identities of arithmetic, exact in every case: no float rule may change the sign of a zero or lose a NaN, no
//! integer rule may remove a division that checked launches report.

use crate::{
    elem::{Class, Elem},
    kernel::{Op, Value},
    ops::OpKind::{self, *},
    passes::{
        float::{decode, round},
        fold::{fold, limits, value},
        rewrite::Rewriter,
    },
    scalar::Scalar,
};

pub(super) fn select(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let (Select, &[c, y, z]) = (op.kind, op.operands.as_slice()) else { return None };
    if let Some(c) = cx.as_const(c) {
        return Some(if c.is_true() { y } else { z });
    }
    if y == z {
        return Some(y);
    }
    let ty = cx.tile(op.result())?.clone();
    if let Some(not) = cx.def_of(c, Not) {
        return Some(cx.emit(Select, &[not.operands[0], z, y], ty, op.attrs.clone(), &op.loc));
    }
    match (ty.elem, cx.as_const(y).map(Scalar::is_true), cx.as_const(z).map(Scalar::is_true)) {
        (Elem::Bool, Some(true), Some(false)) => Some(c),
        (Elem::Bool, Some(false), Some(true)) => Some(cx.plain(Not, &[c], ty, &op.loc)),
        _ => None,
    }
}

pub(super) fn unary(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let &[x] = op.operands.as_slice() else { return None };
    if !matches!(op.kind, Neg | Not | Abs) {
        return None;
    }
    let ty = cx.tile(op.result())?.clone();
    if op.kind == Abs && ty.elem.class() == Class::Unsigned {
        return Some(x);
    }
    let inner = cx.def(x)?;
    match (op.kind, inner.kind) {
        (Neg, Neg) | (Not, Not) => Some(inner.operands[0]),
        (Abs, Abs) => Some(x),
        (Abs, Neg) => Some(cx.plain(Abs, &[inner.operands[0]], ty, &op.loc)),
        (Not, compare) => {
            let opposite = opposite(compare, cx.tile(inner.operands.first().copied()?)?.elem)?;
            Some(cx.plain(opposite, &inner.operands, ty, &op.loc))
        }
        _ => None,
    }
}

/// The comparison that holds where this one does not. An order of floats has none: both are false of NaN.
fn opposite(compare: OpKind, e: Elem) -> Option<OpKind> {
    Some(match compare {
        Eq => Ne,
        Ne => Eq,
        _ if e.is_float() => return None,
        Lt => Ge,
        Ge => Lt,
        Gt => Le,
        Le => Gt,
        _ => return None,
    })
}

/// The op that gives the same result with its operands exchanged. The extremes of floats may tell +0 from −0 by their
/// place.
pub(in crate::passes) fn exchanged(kind: OpKind, e: Elem) -> Option<OpKind> {
    Some(match kind {
        Min | Max | MinNan | MaxNan if e.is_float() => return None,
        Add | Mul | Min | Max | And | Or | Xor | Umulhi | Eq | Ne => kind,
        Lt => Gt,
        Gt => Lt,
        Le => Ge,
        Ge => Le,
        _ => return None,
    })
}

pub(super) fn binary(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let &[x, y] = op.operands.as_slice() else { return None };
    if !op.kind.is_elementwise() {
        return None;
    }
    // Constants stand to the right.
    if cx.as_const(x).is_some()
        && cx.as_const(y).is_none()
        && let Some(kind) = exchanged(op.kind, cx.tile(x)?.elem)
    {
        let ty = cx.tile(op.result())?.clone();
        return Some(cx.emit(kind, &[y, x], ty, op.attrs.clone(), &op.loc));
    }
    if x == y {
        return with_itself(cx, op, x);
    }
    let c = cx.as_const(y)?;
    if c.elem.is_float() { float_with_const(cx, op, x, c) } else { integer_with_const(cx, op, x, c) }
}

fn with_itself(cx: &mut Rewriter, op: &Op, x: Value) -> Option<Value> {
    let ty = cx.tile(op.result())?.clone();
    let float = cx.tile(x)?.elem.is_float();
    let s = match op.kind {
        And | Or | Min | Max | MinNan | MaxNan => return Some(x),
        Lt | Gt => Scalar::bool(false),
        _ if float => return None,
        Ne => Scalar::bool(false),
        Eq | Le | Ge => Scalar::bool(true),
        Sub | Xor => Scalar::zero(ty.elem),
        _ => return None,
    };
    Some(cx.constant(s, &ty.shape, &op.loc))
}

fn float_with_const(cx: &mut Rewriter, op: &Op, x: Value, c: Scalar) -> Option<Value> {
    let v = decode(c)?;
    let is = |w: f64| v.to_bits() == w.to_bits();
    match op.kind {
        // x + 0 turns −0 into +0; x + −0 and x − 0 change nothing.
        Add if is(-0.0) => Some(x),
        Sub if is(0.0) => Some(x),
        Mul | Div if is(1.0) => Some(x),
        Div => {
            // Division by a power of two is multiplication by its reciprocal: one real number, rounded once.
            let reciprocal = round(c.elem, 1.0 / v)?;
            let exact = v.to_bits() << 12 == 0 && v.is_normal() && decode(reciprocal)? * v == 1.0;
            let ty = cx.tile(op.result())?.clone();
            exact.then(|| {
                let r = cx.constant(reciprocal, &ty.shape, &op.loc);
                cx.plain(Mul, &[x, r], ty, &op.loc)
            })
        }
        _ => None,
    }
}

fn integer_with_const(cx: &mut Rewriter, op: &Op, x: Value, c: Scalar) -> Option<Value> {
    let e = c.elem;
    let (v, (least, largest)) = (value(c), limits(e));
    let ones = c == Scalar::from_bits(e, u64::MAX);
    let amount = if e == Elem::Bool { 0 } else { c.bits % e.bits() as u64 };
    let ty = cx.tile(op.result())?.clone();
    let mut constant = |s| Some(cx.constant(s, &ty.shape, &op.loc));
    match op.kind {
        Add | Sub | Or | Xor if v == 0 => Some(x),
        Shl | Shr if amount == 0 => Some(x),
        Mul | Div if v == 1 => Some(x),
        Mul | And if v == 0 => constant(Scalar::zero(e)),
        Rem if v == 1 => constant(Scalar::zero(e)),
        And if ones => Some(x),
        Or if ones => constant(c),
        Xor if ones => Some(cx.plain(Not, &[x], ty, &op.loc)),
        Min if v == largest => Some(x),
        Max if v == least => Some(x),
        Min if v == least => constant(c),
        Max if v == largest => constant(c),
        // Bool against a constant is the bool or its negation.
        Eq | Ne if e == Elem::Bool => {
            Some(if c.is_true() == (op.kind == Eq) { x } else { cx.plain(Not, &[x], ty, &op.loc) })
        }
        Sub if e.is_signed() && v != least => {
            let negated = cx.constant(fold(Neg, &[c], e)?, &ty.shape, &op.loc);
            Some(cx.plain(Add, &[x, negated], ty, &op.loc))
        }
        Add | Mul | And | Or | Xor => {
            // (x ∘ c₁) ∘ c₂ = x ∘ (c₁ ∘ c₂), unless the constants overflow: the bits would be right, but what is known
            // about ranges would be lost.
            let inner = cx.def_of(x, op.kind)?;
            let first = cx.as_const(inner.operands[1])?;
            let both = fold(op.kind, &[first, c], e)?;
            let fits = match op.kind {
                Add => value(both) == value(first) + v,
                Mul => value(first).checked_mul(v) == Some(value(both)),
                _ => true,
            };
            fits.then(|| {
                let both = cx.constant(both, &ty.shape, &op.loc);
                cx.plain(op.kind, &[inner.operands[0], both], ty, &op.loc)
            })
        }
        _ => None,
    }
}

pub(super) fn fma(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    let (Fma, &[x, y, z]) = (op.kind, op.operands.as_slice()) else { return None };
    let ty = cx.tile(op.result())?.clone();
    if cx.as_const(x).is_some() && cx.as_const(y).is_none() {
        return Some(cx.emit(Fma, &[y, x, z], ty, op.attrs.clone(), &op.loc));
    }
    let is = |c: Option<Scalar>, w: f64| c.and_then(decode).is_some_and(|v| v.to_bits() == w.to_bits());
    if is(cx.as_const(y), 1.0) {
        return Some(cx.plain(Add, &[x, z], ty, &op.loc));
    }
    if is(cx.as_const(z), -0.0) {
        return Some(cx.plain(Mul, &[x, y], ty, &op.loc));
    }
    None
}
