//! Casts of casts.

use crate::{
    elem::Elem,
    kernel::{Op, Value},
    ops::OpKind,
    passes::{float::digits, fold::limits, rewrite::Rewriter},
};

pub(super) fn cast(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    if op.kind != OpKind::Cast {
        return None;
    }
    let ty = cx.tile(op.result())?.clone();
    let x = op.operands[0];
    let from = cx.tile(x)?.elem;
    if from == ty.elem {
        return Some(x);
    }
    if let Some(inner) = cx.def_of(x, OpKind::Cast) {
        let first = inner.operands[0];
        return merges(cx.tile(first)?.elem, from, ty.elem).then(|| cx.plain(OpKind::Cast, &[first], ty, &op.loc));
    }
    // A cast of a counted axis counts in the other type.
    if cx.def_of(x, OpKind::Iota).is_some() && ty.elem.is_int() {
        let last = ty.shape[0] as i128 - 1;
        return (last <= limits(from).1).then(|| cx.plain(OpKind::Iota, &[], ty, &op.loc));
    }
    None
}

/// Whether casting from `a` through `b` to `c` is the same as casting from `a` to `c`.
fn merges(a: Elem, b: Elem, c: Elem) -> bool {
    // On the way back into f8e5m2 an infinity becomes the largest number.
    if a == Elem::F8E5M2 && c == a {
        return false;
    }
    let whole = |e: Elem| !e.is_float();
    if c == Elem::Bool || a == Elem::Bool {
        // 0 and 1 are in every type, and what `b` holds exactly is zero just where `a` is.
        return holds(a, b);
    }
    if whole(a) && whole(b) && whole(c) {
        // The low bits stay; bits above come from the sign, unless `b` cut it off.
        return (b != Elem::Bool && c.bits() <= b.bits()) || holds(a, b);
    }
    // An integer saturates on its way back from a float, and wraps on the direct way.
    let saturates = whole(a) && !whole(b) && whole(c) && !holds(a, c);
    holds(a, b) && !saturates
}

/// Whether every value of `a` is a value of `b`, so that a cast from `a` to `b` is exact.
fn holds(a: Elem, b: Elem) -> bool {
    if a == Elem::Bool || a == b {
        return true;
    }
    match (a.is_float(), b.is_float()) {
        (true, false) => false,
        (false, true) => a.bits() - a.is_signed() as u32 <= digits(b),
        (false, false) => limits(b).0 <= limits(a).0 && limits(a).1 <= limits(b).1,
        (true, true) => match a {
            Elem::F8E4M3 | Elem::F8E5M2 => b.bits() > 8,
            Elem::F16 | Elem::BF16 => b.bits() > 16,
            Elem::F32 => b == Elem::F64,
            _ => false,
        },
    }
}

pub(super) fn bitcast(cx: &mut Rewriter, op: &Op) -> Option<Value> {
    if op.kind != OpKind::Bitcast {
        return None;
    }
    let ty = cx.tile(op.result())?.clone();
    let x = op.operands[0];
    if *cx.tile(x)? == ty {
        return Some(x);
    }
    let inner = cx.def_of(x, OpKind::Bitcast)?;
    Some(cx.plain(OpKind::Bitcast, &[inner.operands[0]], ty, &op.loc))
}
