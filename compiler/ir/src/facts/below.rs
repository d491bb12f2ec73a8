//! Upper bounds by the extent of a view, which is a number only at run time: `v · mul + add ≤ dim(view, axis)`.
//!
//! The factor carries a division through: of q = dim / 64 it is known that q·64 ≤ dim, so a loop's k < q has
//! k·64 + 64 ≤ dim, and the tile of 64 at position k·64 lies inside. A known divisor of the extent tightens bounds: a
//! multiple of 64 that does not exceed dim + 63 does not exceed dim, if dim is a multiple of 64 too.

use super::{Fact, divisor::gcd, range::Range};
use crate::{
    kernel::{Op, Value},
    ops::OpKind::*,
};
use std::collections::HashMap;

/// An axis of a view or of a packed matrix.
pub(super) type Extent = (Value, usize);

/// `v · mul + add ≤` the extent, for every element v. `mul` is positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Below {
    pub extent: Extent,
    pub mul: i128,
    pub add: i128,
}

/// More bounds of one value than this are not worth keeping.
const MOST: usize = 6;

impl Below {
    fn plus(self, add: Option<i128>) -> Option<Below> {
        Some(Below { add: self.add.checked_add(add?)?, ..self })
    }
    /// The bound of a value that is less by at least `by`.
    pub fn lowered(self, by: i128) -> Option<Below> {
        self.plus(self.mul.checked_mul(by))
    }

    /// The best `add`, knowing a divisor of the value and of the extent.
    pub fn tight(self, divisor: u64, dims: &HashMap<Extent, u64>) -> Below {
        let of_dim = dims.get(&self.extent).copied().unwrap_or(1);
        let Some(of_value) = (divisor as i128).checked_mul(self.mul).map(i128::unsigned_abs) else { return self };
        let g = gcd(of_dim, u64::try_from(of_value % of_dim.max(1) as u128).unwrap_or(1)) as i128;
        if of_dim == 0 || g <= 1 {
            return self;
        }
        // `extent − v·mul` is a multiple of g and not below `add`.
        let up = self.add + (-self.add).rem_euclid(g);
        Below { add: up, ..self }
    }
}

/// The bounds that hold of either of two values.
pub(super) fn join(a: &[Below], b: &[Below]) -> Vec<Below> {
    let like = |x: &Below| b.iter().filter(|y| y.extent == x.extent && y.mul == x.mul).map(|y| y.add.min(x.add)).max();
    let mut out: Vec<Below> = vec![];
    for x in a {
        if let Some(add) = like(x) {
            insert(&mut out, Below { add, ..*x });
        }
    }
    out
}

/// Adds a bound, unless one that is as strong is there.
pub(super) fn insert(all: &mut Vec<Below>, b: Below) {
    match all.iter().position(|x| x.extent == b.extent && x.mul == b.mul) {
        Some(i) => all[i].add = all[i].add.max(b.add),
        None if all.len() < MOST => all.push(b),
        None => {}
    }
}

/// The bounds of an op's integer result, given that it does not wrap.
pub(super) fn of(op: &Op, x: &[Fact], dims: &HashMap<Extent, u64>) -> Vec<Below> {
    let mut out = vec![];
    let mut each = |from: &[Below], f: &dyn Fn(Below) -> Option<Below>| {
        from.iter().filter_map(|&b| f(b)).for_each(|b| insert(&mut out, b));
    };
    let range = |i: usize| x.get(i).and_then(|f| f.range).unwrap_or(Range::new(i128::MIN, i128::MAX));
    let same = |b: Below| Some(b);
    // v / c · c ≤ v for v ≥ 0.
    let divided = |b: Below, c: i128| Some(Below { mul: b.mul.checked_mul(c)?, ..b }.tight(1, dims));
    let multiplied = |b: Below, c: i128| (b.mul % c == 0).then(|| Below { mul: b.mul / c, ..b });
    let shift = |i: usize| range(i).single().filter(|n| (0..63).contains(n)).map(|n| 1i128 << n);
    match op.kind {
        Cast | Broadcast | Reshape | Permute | Slice | ConvertLayout | MultipleOf => each(&x[0].below, &same),
        Add => {
            each(&x[0].below, &|b| b.lowered(range(1).hi.checked_neg()?));
            each(&x[1].below, &|b| b.lowered(range(0).hi.checked_neg()?));
        }
        Sub => each(&x[0].below, &|b| b.lowered(range(1).lo)),
        Min => x.iter().for_each(|f| each(&f.below, &same)),
        Max | Select | Cat => {
            let parts = if op.kind == Select { &x[1..] } else { x };
            let all = parts.iter().skip(1).fold(parts[0].below.clone(), |a, f| join(&a, &f.below));
            each(&all, &same);
        }
        Rem if range(0).lo >= 0 => each(&x[0].below, &same),
        Mul => {
            if let Some(c) = range(1).single().filter(|&c| c > 0) {
                each(&x[0].below, &|b| multiplied(b, c));
            } else if let Some(c) = range(0).single().filter(|&c| c > 0) {
                each(&x[1].below, &|b| multiplied(b, c));
            }
        }
        Shl => {
            if let Some(c) = shift(1) {
                each(&x[0].below, &|b| multiplied(b, c));
            }
        }
        Div | Shr if range(0).lo >= 0 => {
            let c = if op.kind == Div { range(1).single().filter(|&c| c > 0) } else { shift(1) };
            if let Some(c) = c {
                each(&x[0].below, &|b| divided(b, c));
            }
        }
        _ => {}
    }
    out
}

/// Whether `size` elements from each of a tile's positions lie inside an extent.
pub(super) fn inside(f: &Fact, size: i128, extent: Extent, dims: &HashMap<Extent, u64>) -> bool {
    // From v ≥ 0: v + add ≤ v·mul + add ≤ extent.
    let above = f.range.is_some_and(|r| r.lo >= 0);
    above && f.below.iter().any(|b| b.extent == extent && b.tight(f.divisor, dims).add >= size)
}
