//! Arithmetic on constants. It shares no code with the oracle, which the tests hold it against, op by op.
//!
//! What is left to the executor (`None`): functions that are not correctly rounded (their bits are the target's), a
//! NaN result (its payload is not specified), a zero whose sign is not specified, and a division that checked launches
//! report.

use super::float::{decode, encode, fma_to_odd, round};
use crate::{elem::Elem, ops::OpKind, scalar::Scalar};
use std::cmp::Ordering;

/// The result of an elementwise op on constants, with a result of element type `to`.
pub fn fold(kind: OpKind, operands: &[Scalar], to: Elem) -> Option<Scalar> {
    use OpKind::*;
    match (kind, operands) {
        (Select, &[c, y, z]) => Some(if c.bits != 0 { y } else { z }),
        (Bitcast, &[x]) => Some(Scalar::from_bits(to, x.bits)),
        (Cast, &[x]) => cast(x, to),
        (Eq | Ne | Lt | Le | Gt | Ge, &[x, y]) => Some(Scalar::bool(holds(kind, compare(x, y)))),
        _ if to.is_float() => float(kind, operands, to),
        (_, &[x]) => integer(kind, x, x),
        (_, &[x, y]) => integer(kind, x, y),
        _ => None,
    }
}

/// The value of an integer or bool.
pub(crate) fn value(s: Scalar) -> i128 {
    let above = 128 - s.elem.bits();
    if s.elem.is_signed() { ((s.bits as i128) << above) >> above } else { s.bits as i128 }
}

/// Least and largest value of an integer type (bool: 0, 1).
pub(crate) fn limits(e: Elem) -> (i128, i128) {
    match e.is_signed() {
        true => (-(1 << (e.bits() - 1)), (1 << (e.bits() - 1)) - 1),
        false => (0, (1 << e.bits()) - 1),
    }
}

fn wrap(e: Elem, v: i128) -> Option<Scalar> {
    Some(Scalar::from_bits(e, v as u64))
}

fn compare(x: Scalar, y: Scalar) -> Option<Ordering> {
    match (decode(x), decode(y)) {
        (Some(x), Some(y)) => x.partial_cmp(&y),
        _ => Some(value(x).cmp(&value(y))),
    }
}

/// Whether a comparison is true of operands in this order (`None`: a NaN is among them).
fn holds(kind: OpKind, order: Option<Ordering>) -> bool {
    match kind {
        OpKind::Eq => order == Some(Ordering::Equal),
        OpKind::Ne => order != Some(Ordering::Equal),
        OpKind::Lt => order == Some(Ordering::Less),
        OpKind::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        OpKind::Gt => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn cast(x: Scalar, to: Elem) -> Option<Scalar> {
    if x.elem == to {
        return Some(x);
    }
    let Some(v) = decode(x) else {
        let v = value(x);
        return match to {
            Elem::Bool => Some(Scalar::bool(v != 0)),
            _ if to.is_float() => encode(to, v < 0, v.unsigned_abs(), 0),
            _ => wrap(to, v),
        };
    };
    match to {
        Elem::Bool => Some(Scalar::bool(v != 0.0)),
        _ if to.is_float() => round(to, v),
        _ if v.is_nan() => wrap(to, 0),
        _ => {
            let (least, largest) = limits(to);
            // `as` saturates, at bounds far outside every type's.
            wrap(to, (v.trunc() as i128).clamp(least, largest))
        }
    }
}

/// Ops on integers and bool (a unary op ignores `y`).
fn integer(kind: OpKind, x: Scalar, y: Scalar) -> Option<Scalar> {
    use OpKind::*;
    let e = x.elem;
    let (a, b) = (value(x), value(y));
    let (least, _) = limits(e);
    let overflows = e.is_signed() && a == least && b == -1;
    let amount = (y.bits % e.bits() as u64) as u32;
    match kind {
        Neg => wrap(e, -a),
        Abs => wrap(e, a.abs()),
        Not => wrap(e, !a),
        Add => wrap(e, a + b),
        Sub => wrap(e, a - b),
        // 2^64 · 2^64 does not fit i128; the low 64 bits of the wrapped product are right.
        Mul => wrap(e, a.wrapping_mul(b)),
        Div if b != 0 && !overflows => wrap(e, a / b),
        Rem if b != 0 && !overflows => wrap(e, a % b),
        Min => wrap(e, a.min(b)),
        Max => wrap(e, a.max(b)),
        And => wrap(e, a & b),
        Or => wrap(e, a | b),
        Xor => wrap(e, a ^ b),
        Shl => wrap(e, ((x.bits as u128) << amount) as i128),
        Shr => wrap(e, a >> amount),
        Umulhi => wrap(e, ((x.bits as u128 * y.bits as u128) >> e.bits()) as i128),
        _ => None,
    }
}

fn float(kind: OpKind, operands: &[Scalar], to: Elem) -> Option<Scalar> {
    use OpKind::*;
    let v: Vec<f64> = operands.iter().map(|&s| decode(s)).collect::<Option<_>>()?;
    if let (Neg | Abs, &[x]) = (kind, v.as_slice()) {
        let sign = 1 << (to.bits() - 1);
        let bits = if kind == Neg { operands[0].bits ^ sign } else { operands[0].bits & !sign };
        return (!x.is_nan()).then_some(Scalar::from_bits(to, bits));
    }
    // f8e5m2 has infinities, which rounding to it never makes: what they become is left open.
    if to == Elem::F8E5M2 && v.iter().any(|x| x.is_infinite()) {
        return None;
    }
    if let (Min | Max | MinNan | MaxNan, &[x, y]) = (kind, v.as_slice()) {
        return extreme(kind, x, y).map(|i| operands[i]);
    }
    // f64 has more than twice the digits of the other types, so that rounding a sum, product, quotient or root twice
    // equals rounding it once.
    let exact = |v: f64| round(to, v);
    match (kind, v.as_slice()) {
        (Sqrt, &[x]) => exact(x.sqrt()),
        (Floor, &[x]) => exact(x.floor()),
        (Ceil, &[x]) => exact(x.ceil()),
        (Round, &[x]) => exact(x.round_ties_even()),
        (Add, &[x, y]) => exact(x + y),
        (Sub, &[x, y]) => exact(x - y),
        (Mul, &[x, y]) => exact(x * y),
        (Div, &[x, y]) => exact(x / y),
        (Rem, &[x, y]) => exact(x % y),
        (Fma, &[x, y, z]) if to == Elem::F64 => exact(x.mul_add(y, z)),
        (Fma, &[x, y, z]) => exact(fma_to_odd(x, y, z)),
        _ => None,
    }
}

/// Which operand is the smaller or larger.
fn extreme(kind: OpKind, x: f64, y: f64) -> Option<usize> {
    if x.is_nan() || y.is_nan() {
        let ignores = matches!(kind, OpKind::Min | OpKind::Max) && !(x.is_nan() && y.is_nan());
        return ignores.then_some(x.is_nan() as usize);
    }
    if x == y {
        return (x.to_bits() == y.to_bits()).then_some(0);
    }
    let smaller = matches!(kind, OpKind::Min | OpKind::MinNan);
    Some(((x < y) != smaller) as usize)
}
