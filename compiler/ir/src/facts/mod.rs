//! What is known of a kernel's values before it runs: ranges, divisors, constants, steps along axes; and of its memory
//! accesses: which axes are inside the view for certain, and how far addresses are aligned.
//!
//! [`Facts::of`] runs one forward dataflow analysis. Facts hold for every launch that the kernel's types allow: grid
//! indices lie below grid extents, extents of views fit i32, a loop's index lies between its bounds. An `assume`, a
//! `multiple_of` and the condition of an `if` count only where they dominate; arithmetic that may wrap keeps only what
//! wrapping keeps. What cannot be known is not guessed: a lowering asks at run time.

mod below;
mod divisor;
mod range;
mod show;
mod steps;
mod transfer;
mod walk;

pub use divisor::gcd;
pub use range::Range;
pub use show::show;
pub use steps::Step;

use crate::{
    kernel::{Kernel, Op, Value},
    passes::fold::limits,
    scalar::Scalar,
    types::{TileType, Type},
};
use std::collections::HashMap;

/// What is known of every element of a tile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    /// For integers and bool.
    range: Option<Range>,
    /// Divides every element; 0 when all are zero. 1 for floats.
    divisor: u64,
    /// Divides every element whose index along the last axis is 0; a multiple of `divisor`.
    first: u64,
    /// Advance along each axis.
    steps: steps::Steps,
    /// Bounds by extents of views.
    below: Vec<below::Below>,
    /// The value of a float constant.
    constant: Option<Scalar>,
}

impl Fact {
    /// Nothing is known but the type.
    fn unknown(t: &TileType) -> Fact {
        let range = Range::full(t.elem);
        Fact { range, divisor: 1, first: 1, steps: steps::unknown(t), below: vec![], constant: None }
    }

    /// What holds of either value.
    fn join(&self, other: &Fact) -> Fact {
        Fact {
            range: self.range.zip(other.range).map(|(a, b)| a.join(b)),
            divisor: gcd(self.divisor, other.divisor),
            first: gcd(self.first, other.first),
            steps: steps::join_all(&self.steps, &other.steps),
            below: below::join(&self.below, &other.below),
            constant: self.constant.filter(|c| other.constant == Some(*c)),
        }
    }
}

/// What is known of a memory access.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Access {
    /// For each axis of the view, whether all positions lie inside.
    inside: Vec<bool>,
    /// Bytes that divide the address of the first element of every row.
    alignment: usize,
}

/// The facts of one kernel.
#[derive(Debug)]
pub struct Facts<'k> {
    kernel: &'k Kernel,
    values: Vec<Option<Fact>>,
    /// By the op's place in the kernel, which the borrow keeps still.
    accesses: HashMap<*const Op, Access>,
}

impl<'k> Facts<'k> {
    /// Analyses a kernel that [`Kernel::verify`] accepts.
    pub fn of(kernel: &'k Kernel) -> Facts<'k> {
        walk::analyse(kernel)
    }

    fn get(&self, v: Value) -> Option<&Fact> {
        self.values.get(v.0 as usize)?.as_ref()
    }

    /// The range of the elements of an integer or bool tile. `None` for floats, views, packed matrices and code that is
    /// never reached.
    pub fn range(&self, v: Value) -> Option<Range> {
        self.get(v)?.range
    }

    /// The largest number known to divide every element: 0 when all elements are zero, 1 when nothing is known.
    pub fn divisor(&self, v: Value) -> u64 {
        self.get(v).map_or(1, |f| f.divisor)
    }

    /// The largest number known to divide the elements at index 0 along the last axis: where each row starts.
    pub fn row_divisor(&self, v: Value) -> u64 {
        self.get(v).map_or(1, |f| f.first)
    }

    /// The value that every element has.
    pub fn constant(&self, v: Value) -> Option<Scalar> {
        let f = self.get(v)?;
        let e = self.kernel.ty(v).as_tile()?.elem;
        f.constant.or_else(|| f.range?.single().map(|x| Scalar::from_bits(e, x as u64)))
    }

    /// How the elements advance along an axis.
    pub fn step(&self, v: Value, axis: usize) -> Option<Step> {
        *self.get(v)?.steps.get(axis)?
    }

    /// How the elements of `v` advance along an axis, if that is known to be exact: neighbours differ by this much, and
    /// nothing wraps but at the limits of the element type.
    pub fn exact_step(&self, v: Value, axis: usize) -> Option<i64> {
        let bits = self.kernel.ty(v).as_tile()?.elem.bits();
        self.step(v, axis).filter(|s| s.bits == bits).map(|s| s.by)
    }

    /// Whether every element that a load, store, gather, scatter, atomic or packed load names lies inside its view, for
    /// every program: no check is needed.
    pub fn in_bounds(&self, op: &Op) -> bool {
        self.accesses.get(&std::ptr::from_ref(op)).is_some_and(|a| a.inside.iter().all(|&i| i))
    }

    /// As [`Facts::in_bounds`], of one axis of the view.
    pub fn in_bounds_along(&self, op: &Op, axis: usize) -> bool {
        self.accesses.get(&std::ptr::from_ref(op)).is_some_and(|a| a.inside.get(axis) == Some(&true))
    }

    /// Bytes, a power of two up to 16, that divide the address of the first element of every row (along the tile's last
    /// axis) of a load, store, gather, scatter or atomic. At least the size of an element, to which every view is
    /// aligned; 1 for other ops.
    pub fn alignment(&self, op: &Op) -> usize {
        self.accesses.get(&std::ptr::from_ref(op)).map_or(1, |a| a.alignment)
    }

    /// Whether neighbours along the last axis of a gather, scatter or atomic are neighbours in memory: the last index
    /// advances by one exactly, the others stay, and the view's innermost stride is 1.
    pub fn contiguous(&self, op: &Op) -> bool {
        let Some(Type::View(view)) = op.operands.first().map(|&v| self.kernel.ty(v)) else { return false };
        let Some(last) = op.operands.get(1).and_then(|&v| self.kernel.ty(v).as_tile()?.rank().checked_sub(1)) else {
            return false;
        };
        let wanted = |axis: usize| if axis + 1 == view.rank { 1 } else { 0 };
        let indices = op.operands.iter().skip(1).take(view.rank).enumerate();
        view.facts.unit
            && view.rank > 0
            && indices.into_iter().all(|(axis, &v)| self.exact_step(v, last) == Some(wanted(axis)))
    }
}

/// Whether a value of a type's interval needs no wrapping.
fn fits(r: Range, t: &TileType) -> bool {
    let (lo, hi) = limits(t.elem);
    r.within(Range::new(lo, hi))
}
