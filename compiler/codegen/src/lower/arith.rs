//! Arithmetic that is the same on every target, as the op table defines it.

use super::{
    build::{Build, Cmp, FCmp, V},
    convert::widen,
};
use tegula_ir::{Elem, OpKind};

/// `r`, or a NaN where an operand is one.
pub fn keep_nan<'c>(b: &Build<'c>, x: &[V<'c>], r: V<'c>) -> V<'c> {
    b.select(b.cmpf(FCmp::Uno, x[0], x[1]), b.addf(x[0], x[1]), r)
}

/// How floats are compared, if that is what an op does.
pub fn float_compare(kind: OpKind) -> Option<FCmp> {
    Some(match kind {
        OpKind::Eq => FCmp::Oeq,
        OpKind::Ne => FCmp::Une,
        OpKind::Lt => FCmp::Olt,
        OpKind::Le => FCmp::Ole,
        OpKind::Gt => FCmp::Ogt,
        OpKind::Ge => FCmp::Oge,
        _ => return None,
    })
}

/// An elementwise op on integers of type `e`.
pub fn integer<'c>(b: &Build<'c>, kind: OpKind, e: Elem, x: &[V<'c>]) -> V<'c> {
    let signed = e.is_signed();
    let pick = |s: Cmp, u: Cmp| if signed { s } else { u };
    let amount = || b.and_c(x[1], e.bits() as i64 - 1);
    match kind {
        OpKind::Neg => b.sub(b.int_like(x[0], 0), x[0]),
        OpKind::Abs if signed => b.absi(x[0]),
        OpKind::Abs => x[0],
        OpKind::Not => b.not(x[0]),
        OpKind::Add => b.add(x[0], x[1]),
        OpKind::Sub => b.sub(x[0], x[1]),
        OpKind::Mul => b.mul(x[0], x[1]),
        OpKind::Min if signed => b.mins(x[0], x[1]),
        OpKind::Min => b.minu(x[0], x[1]),
        OpKind::Max if signed => b.maxs(x[0], x[1]),
        OpKind::Max => b.maxu(x[0], x[1]),
        OpKind::And => b.and(x[0], x[1]),
        OpKind::Or => b.or(x[0], x[1]),
        OpKind::Xor => b.xor(x[0], x[1]),
        OpKind::Shl => b.shl(x[0], amount()),
        OpKind::Shr if signed => b.shrs(x[0], amount()),
        OpKind::Shr => b.shru(x[0], amount()),
        OpKind::Umulhi => b.umulhi(x[0], x[1]),
        OpKind::Eq => b.cmp(Cmp::Eq, x[0], x[1]),
        OpKind::Ne => b.cmp(Cmp::Ne, x[0], x[1]),
        OpKind::Lt => b.cmp(pick(Cmp::Slt, Cmp::Ult), x[0], x[1]),
        OpKind::Le => b.cmp(pick(Cmp::Sle, Cmp::Ule), x[0], x[1]),
        OpKind::Gt => b.cmp(pick(Cmp::Sgt, Cmp::Ugt), x[0], x[1]),
        OpKind::Ge => b.cmp(pick(Cmp::Sge, Cmp::Uge), x[0], x[1]),
        k => unreachable!("`{}` is no elementwise op on integers", k.name()),
    }
}

/// Whether `y` comes strictly before `x`: i1. A NaN comes after everything.
pub fn before<'c>(b: &Build<'c>, e: Elem, descending: bool, y: V<'c>, x: V<'c>) -> V<'c> {
    if e.is_float() {
        let (x, y) = (widen(b, x, e), widen(b, y, e));
        let less = b.cmpf(if descending { FCmp::Ogt } else { FCmp::Olt }, y, x);
        let x_nan = b.cmpf(FCmp::Uno, x, x);
        return b.or(less, b.and(x_nan, b.cmpf(FCmp::Ord, y, y)));
    }
    let how = match (descending, e.is_signed()) {
        (false, true) => Cmp::Slt,
        (false, false) => Cmp::Ult,
        (true, true) => Cmp::Sgt,
        (true, false) => Cmp::Ugt,
    };
    b.cmp(how, y, x)
}
