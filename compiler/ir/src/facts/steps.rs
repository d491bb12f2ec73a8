//! How the elements of a tile advance along each axis: what tells a contiguous access from a scattered one.

use super::{Fact, range::Range};
use crate::{
    attr::Key,
    kernel::{Kernel, Op},
    ops::OpKind::{self, *},
    types::TileType,
};

/// Along an axis, each element is the one before plus `by`, modulo 2^`bits`.
///
/// With `bits` the width of the element type, that says everything: element i is the first plus i·`by`, wrapped.
/// `bits` is less after a widening cast of a value that may have wrapped; then the difference of the last and the first
/// element, found at run time, decides: if it is (n−1)·`by` and |(n−1)·`by`| < 2^`bits`, the steps are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The difference of neighbours, between −2^(bits−1) and 2^(bits−1) − 1.
    pub by: i64,
    /// How many low bits of the difference are known.
    pub bits: u32,
}

pub(super) type Steps = Vec<Option<Step>>;

impl Step {
    fn new(by: i128, bits: u32) -> Step {
        let above = 128 - bits;
        Step { by: ((by << above) >> above) as i64, bits }
    }
    fn is_zero(self, bits: u32) -> bool {
        self.by == 0 && self.bits >= bits
    }
}

/// The steps of a tile whose elements are all the same.
pub(super) fn uniform(t: &TileType) -> Steps {
    vec![Some(Step { by: 0, bits: t.elem.bits() }); t.rank()]
}

/// The steps of a tile of which nothing is known: along an axis of extent 1 there is nothing to know.
pub(super) fn unknown(t: &TileType) -> Steps {
    t.shape.iter().map(|&n| (n == 1).then_some(Step { by: 0, bits: t.elem.bits() })).collect()
}

fn join(a: Option<Step>, b: Option<Step>) -> Option<Step> {
    let (a, b) = (a?, b?);
    let bits = a.bits.min(b.bits);
    (Step::new(a.by as i128, bits) == Step::new(b.by as i128, bits)).then(|| Step::new(a.by as i128, bits))
}

/// What holds of either tile.
pub(super) fn join_all(a: &Steps, b: &Steps) -> Steps {
    a.iter().zip(b).map(|(&a, &b)| join(a, b)).collect()
}

/// The steps of an op's result.
pub(super) fn of(kernel: &Kernel, op: &Op, x: &[Fact], to: &TileType) -> Steps {
    let bits = to.elem.bits();
    let mut steps = match op.kind {
        Const => uniform(to),
        Iota => vec![Some(Step::new(1, bits))],
        Broadcast if x[0].steps.is_empty() => uniform(to),
        // Repeated axes have extent 1 in the operand, so that their step is 0 there.
        Broadcast | MultipleOf | Slice | ConvertLayout => x[0].steps.clone(),
        Permute => op.attrs.ints(Key::Perm).unwrap_or_default().iter().map(|&p| x[0].steps[p as usize]).collect(),
        Reshape => reshape(kernel.ty(op.operands[0]).as_tile(), &x[0].steps, to),
        Cat => {
            let mut all = x.iter().skip(1).fold(x[0].steps.clone(), |a, f| join_all(&a, &f.steps));
            if let Some(axis) = op.attrs.int(Key::Axis) {
                all[axis as usize] = None;
            }
            all
        }
        kind if kind.is_elementwise() => {
            let from = kernel.ty(op.operands[0]).as_tile().map_or(bits, |t| t.elem.bits());
            let ranges: Option<Vec<Range>> = x.iter().map(|f| f.range).collect();
            (0..to.rank())
                .map(|axis| {
                    let s: Vec<Option<Step>> = x.iter().map(|f| f.steps[axis]).collect();
                    let even = x.iter().zip(&op.operands).all(|(f, &v)| {
                        let bits = kernel.ty(v).as_tile().map_or(64, |t| t.elem.bits());
                        f.steps[axis].is_some_and(|s| s.is_zero(bits))
                    });
                    if even {
                        return Some(Step { by: 0, bits });
                    }
                    if to.elem.is_int() { elementwise(kind, from, bits, &s, ranges.as_deref()?) } else { None }
                })
                .collect()
        }
        _ => unknown(to),
    };
    for (step, &n) in steps.iter_mut().zip(&to.shape) {
        if n == 1 {
            *step = Some(Step { by: 0, bits });
        }
    }
    steps
}

fn elementwise(kind: OpKind, from: u32, bits: u32, s: &[Option<Step>], r: &[Range]) -> Option<Step> {
    let scaled = |s: Option<Step>, by: i128| s.map(|s| Step::new((s.by as i128).wrapping_mul(by), s.bits));
    let sum = |a: Option<Step>, b: Option<Step>, sign: i128| {
        let (a, b) = (a?, b?);
        Some(Step::new(a.by as i128 + sign * b.by as i128, a.bits.min(b.bits)))
    };
    match kind {
        Add => sum(s[0], s[1], 1),
        Sub => sum(s[0], s[1], -1),
        Neg => scaled(s[0], -1),
        Not => scaled(s[0], -1),
        Mul => match (r[0].single(), r[1].single()) {
            (_, Some(c)) => scaled(s[0], c),
            (Some(c), _) => scaled(s[1], c),
            _ => None,
        },
        Shl => scaled(s[0], 1 << r[1].single()?.rem_euclid(bits as i128)),
        Select if s[0].is_some_and(|c| c.by == 0) => join(s[1], s[2]),
        Bitcast => s[0],
        Cast => {
            let s = s[0]?;
            // Neighbours closer than half the modulus differ by exactly the step, in any type.
            let exact = s.bits == from && r[0].hi - r[0].lo < 1i128 << (from - 1);
            Some(Step::new(s.by as i128, if exact { bits } else { s.bits.min(bits) }))
        }
        _ => None,
    }
}

/// Axes of extent 1 come and go; an axis alone may be cut into several; equal elements stay equal.
fn reshape(from: Option<&TileType>, steps: &Steps, to: &TileType) -> Steps {
    let Some(from) = from else { return unknown(to) };
    let bits = to.elem.bits();
    if steps.iter().all(|s| s.is_some_and(|s| s.is_zero(bits))) {
        return uniform(to);
    }
    let real = |t: &TileType| t.shape.iter().copied().enumerate().filter(|e| e.1 > 1).collect::<Vec<_>>();
    let (old, new) = (real(from), real(to));
    let mut out = unknown(to);
    if let &[(axis, _)] = old.as_slice() {
        let mut stride = 1i128;
        for &(to_axis, n) in new.iter().rev() {
            out[to_axis] = steps[axis].map(|s| Step::new((s.by as i128).wrapping_mul(stride), s.bits));
            stride *= n as i128;
        }
    } else if old.iter().map(|e| e.1).eq(new.iter().map(|e| e.1)) {
        for (o, n) in old.iter().zip(&new) {
            out[n.0] = steps[o.0];
        }
    }
    out
}
