//! Intervals of integers: what the elements of a tile lie between.

use crate::{
    attr::{Key, ReduceKind},
    elem::Elem,
    kernel::Op,
    ops::OpKind::{self, *},
    passes::fold::limits,
};

/// `lo` and `hi` are the least and the largest value that an element can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Least value.
    pub lo: i128,
    /// Largest value.
    pub hi: i128,
}

impl Range {
    /// From `lo` to `hi`, both included.
    pub fn new(lo: i128, hi: i128) -> Range {
        Range { lo, hi }
    }
    /// All values of an integer type or bool; `None` for floats, which have no range.
    pub fn full(e: Elem) -> Option<Range> {
        (!e.is_float()).then(|| Range::new(limits(e).0, limits(e).1))
    }
    /// One value.
    pub fn point(v: i128) -> Range {
        Range::new(v, v)
    }
    /// Whether `v` lies inside.
    pub fn contains(self, v: i128) -> bool {
        self.lo <= v && v <= self.hi
    }
    /// The only value.
    pub fn single(self) -> Option<i128> {
        (self.lo == self.hi).then_some(self.lo)
    }
    /// Whether all values lie in another range.
    pub fn within(self, outer: Range) -> bool {
        outer.lo <= self.lo && self.hi <= outer.hi
    }
    /// The least range around both.
    pub fn join(self, other: Range) -> Range {
        Range::new(self.lo.min(other.lo), self.hi.max(other.hi))
    }

    fn hull(values: impl IntoIterator<Item = i128>) -> Range {
        values.into_iter().map(Range::point).reduce(Range::join).unwrap_or(Range::point(0))
    }
    fn corners(self, y: Range, f: impl Fn(i128, i128) -> i128) -> Range {
        Range::hull([f(self.lo, y.lo), f(self.lo, y.hi), f(self.hi, y.lo), f(self.hi, y.hi)])
    }
}

const BOOL: Range = Range { lo: 0, hi: 1 };

/// The interval of an elementwise op on integers or bool of type `e`, before it wraps to the result's type. `None` when
/// nothing is known.
pub(super) fn elementwise(kind: OpKind, e: Elem, x: &[Range]) -> Option<Range> {
    let largest = limits(e).1;
    let amount = |r: Range| r.single().map(|v| v.rem_euclid(e.bits() as i128) as u32);
    Some(match (kind, x) {
        (Neg, &[a]) => Range::new(-a.hi, -a.lo),
        (Abs, &[a]) if a.contains(0) => Range::new(0, a.hi.max(-a.lo)),
        (Abs, &[a]) => Range::hull([a.lo.abs(), a.hi.abs()]),
        (Not, &[a]) if e.is_signed() => Range::new(!a.hi, !a.lo),
        (Not, &[a]) => Range::new(largest - a.hi, largest - a.lo),
        (Add, &[a, b]) => Range::new(a.lo + b.lo, a.hi + b.hi),
        (Sub, &[a, b]) => Range::new(a.lo - b.hi, a.hi - b.lo),
        (Mul, &[a, b]) => a.corners(b, i128::saturating_mul),
        (Div, &[a, b]) => {
            // The divisors are the ends of the range and those next to zero; zero itself gives 0.
            let inside = [b.lo, b.hi, -1, 1].into_iter().filter(|&d| d != 0 && b.contains(d));
            let quotients = inside.flat_map(|d| [a.lo / d, a.hi / d]);
            Range::hull(quotients.chain(b.contains(0).then_some(0)))
        }
        (Rem, &[a, b]) => {
            // The sign of a; smaller than the divisor, unless that is zero, which gives a.
            let below = if b.contains(0) { i128::MAX } else { b.lo.abs().max(b.hi.abs()) - 1 };
            Range::new(a.lo.min(0).max(-below), a.hi.max(0).min(below))
        }
        (Min, &[a, b]) => Range::new(a.lo.min(b.lo), a.hi.min(b.hi)),
        (Max, &[a, b]) => Range::new(a.lo.max(b.lo), a.hi.max(b.hi)),
        (And, &[a, b]) if a.lo >= 0 && b.lo >= 0 => Range::new(0, a.hi.min(b.hi)),
        (And, &[a, _]) if a.lo >= 0 => Range::new(0, a.hi),
        (And, &[_, b]) if b.lo >= 0 => Range::new(0, b.hi),
        (Or, &[a, b]) if a.lo >= 0 && b.lo >= 0 => Range::new(a.lo.max(b.lo), ones(a.hi.max(b.hi))),
        (Xor, &[a, b]) if a.lo >= 0 && b.lo >= 0 => Range::new(0, ones(a.hi.max(b.hi))),
        (Shl, &[a, b]) => {
            let factor = 1i128 << amount(b)?;
            Range::new(a.lo.saturating_mul(factor), a.hi.saturating_mul(factor))
        }
        (Shr, &[a, b]) => match amount(b) {
            Some(n) => Range::new(a.lo >> n, a.hi >> n),
            None => Range::new(a.lo.min(0), a.hi.max(0)),
        },
        (Umulhi, &[a, b]) if a.lo >= 0 && b.lo >= 0 => {
            let high = |x: i128, y: i128| ((x as u128 * y as u128) >> e.bits()) as i128;
            Range::new(high(a.lo, b.lo), high(a.hi, b.hi))
        }
        (Bitcast, &[a]) => a,
        (Select, &[c, y, z]) => match c.single() {
            Some(1) => y,
            Some(_) => z,
            None => y.join(z),
        },
        (Eq | Ne | Lt | Le | Gt | Ge, &[a, b]) => truth(kind, a, b),
        _ => return None,
    })
}

/// The least number of the form 2ⁿ−1 that is not below `v`.
fn ones(v: i128) -> i128 {
    (1i128 << (128 - v.leading_zeros())) - 1
}

/// Whether a comparison is known.
fn truth(kind: OpKind, a: Range, b: Range) -> Range {
    let (never, always) = match kind {
        Lt => (a.lo >= b.hi, a.hi < b.lo),
        Le => (a.lo > b.hi, a.hi <= b.lo),
        Gt => (a.hi <= b.lo, a.lo > b.hi),
        Ge => (a.hi < b.lo, a.lo >= b.hi),
        _ => {
            let (apart, same) = (a.hi < b.lo || b.hi < a.lo, a.single().is_some() && a == b);
            if kind == Eq { (apart, same) } else { (same, apart) }
        }
    };
    match (never, always) {
        (true, _) => Range::point(0),
        (_, true) => Range::point(1),
        _ => BOOL,
    }
}

/// A cast of integers or bool to bool or an integer, before it wraps.
pub(super) fn cast(x: Range, to: Elem) -> Range {
    match to {
        Elem::Bool if !x.contains(0) => Range::point(1),
        Elem::Bool if x.single().is_some() => Range::point(0),
        Elem::Bool => BOOL,
        _ => x,
    }
}

/// A reduction or a scan of `n` elements in `x`, before it wraps.
pub(super) fn along_axis(op: &Op, x: Range, n: usize) -> Option<Range> {
    let n = n as i128;
    let all = Range::new(x.lo.saturating_mul(n), x.hi.saturating_mul(n));
    match op.attrs.sym(Key::Kind).and_then(ReduceKind::from_name)? {
        ReduceKind::Sum if op.kind == Scan => Some(x.join(all)),
        ReduceKind::Sum => Some(all),
        ReduceKind::Max | ReduceKind::Min | ReduceKind::Any | ReduceKind::All => Some(x),
        ReduceKind::Xor if x.lo >= 0 => Some(Range::new(0, ones(x.hi))),
        _ => None,
    }
}
