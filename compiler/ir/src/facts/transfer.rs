//! The facts of an op's results from those of its operands.

use super::{
    Fact,
    below::{self, Extent},
    divisor, fits, range,
    range::Range,
    steps,
};
use crate::{
    attr::{Key, ReduceKind},
    elem::Elem,
    kernel::{Kernel, Op, Value},
    ops::OpKind::*,
    types::TileType,
};
use std::collections::HashMap;

/// The largest grid axis and the largest axis of a view.
const MOST: i128 = i32::MAX as i128;

/// The result `v` of an op without regions. `x` has the operands' facts (unknown ones for what is no tile).
pub(super) fn result(kernel: &Kernel, op: &Op, v: Value, x: &[Fact], dims: &HashMap<Extent, u64>) -> Option<Fact> {
    let t = kernel.ty(v).as_tile()?;
    let mut fact = Fact::unknown(t);
    fact.steps = steps::of(kernel, op, x, t);
    if t.elem.is_float() {
        fact.constant = match op.kind {
            Const => op.attrs.scalar(Key::Value),
            Broadcast | Reshape | Permute | Slice | ConvertLayout => x[0].constant,
            _ => None,
        };
        return Some(fact);
    }
    let exact = interval(kernel, op, v, x, t).or(Range::full(t.elem))?;
    let wraps = !fits(exact, t);
    if !wraps {
        fact.range = Some(exact);
    }
    if t.elem == Elem::Bool {
        settle(&mut fact, t);
        return Some(fact);
    }
    if !wraps {
        fact.below = below::of(op, x, dims);
    }
    let all: Vec<u64> = x.iter().map(|f| f.divisor).collect();
    let firsts: Vec<u64> = x.iter().map(|f| f.first).collect();
    let keep = |d: u64| if wraps { divisor::wrapped(d) } else { d };
    fact.divisor = keep(divides(kernel, op, x, &all, exact));
    fact.first = keep(divides_first(kernel, op, x, &firsts, exact).unwrap_or(fact.divisor));
    settle(&mut fact, t);
    Some(fact)
}

/// Makes a fact's parts agree.
pub(super) fn settle(fact: &mut Fact, t: &TileType) {
    if let Some(only) = fact.range.and_then(Range::single) {
        fact.divisor = divisor::of(only);
    }
    // What divides all divides the firsts; where a row has one element, the firsts are all.
    fact.first = divisor::lcm(fact.first, fact.divisor);
    if t.shape.last().is_none_or(|&n| n == 1) {
        fact.divisor = fact.first;
    }
}

/// The interval of the result before it wraps; `None` when only the type is known.
fn interval(kernel: &Kernel, op: &Op, v: Value, x: &[Fact], t: &TileType) -> Option<Range> {
    let ranges = || x.iter().map(|f| f.range).collect::<Option<Vec<Range>>>();
    let from = op.operands.first().and_then(|&v| kernel.ty(v).as_tile());
    // Elements along the axis of the op.
    let along = || Some(from?.shape[op.attrs.int(Key::Axis)? as usize] as i128);
    match op.kind {
        Const => op.attrs.scalar(Key::Value).map(|s| Range::point(crate::passes::fold::value(s))),
        Iota => Some(Range::new(0, t.len() as i128 - 1)),
        ProgramId => Some(Range::new(0, MOST - 1)),
        NumPrograms => Some(Range::new(1, MOST)),
        Dim | PackedDim => Some(Range::new(0, MOST)),
        Broadcast | Reshape | Permute | Slice | ConvertLayout | MultipleOf | Sort => x[0].range,
        TopK if v == op.results[0] => x[0].range,
        TopK => Some(Range::new(0, *from?.shape.last()? as i128 - 1)),
        Cat => ranges()?.into_iter().reduce(Range::join),
        Cast => x[0].range.map(|r| range::cast(r, t.elem)),
        Reduce | Scan => match op.attrs.sym(Key::Kind).and_then(ReduceKind::from_name)? {
            ReduceKind::Argmax | ReduceKind::Argmin => Some(Range::new(0, along()? - 1)),
            _ => range::along_axis(op, x[0].range?, along()? as usize),
        },
        Histogram => Some(Range::new(0, from?.len() as i128)),
        Take => {
            let inside = x[1].range?.within(Range::new(0, along()? - 1));
            let r = x[0].range?;
            Some(if inside { r } else { r.join(Range::point(0)) })
        }
        kind if kind.is_elementwise() => {
            // Of a select between integers the condition is bool, of a comparison the result.
            let e = from.filter(|_| kind != Select).map_or(t.elem, |f| f.elem);
            range::elementwise(kind, e, &ranges()?)
        }
        _ => None,
    }
}

/// What divides every element before it wraps.
fn divides(kernel: &Kernel, op: &Op, x: &[Fact], d: &[u64], exact: Range) -> u64 {
    match op.kind {
        Const => exact.single().map_or(1, divisor::of),
        Iota if exact.hi == 0 => 0,
        Dim | PackedDim => 1,
        Broadcast | Reshape | Permute | Slice | ConvertLayout | Sort | Take => d[0],
        Cat => d.iter().copied().fold(0, divisor::gcd),
        MultipleOf => divisor::lcm(d[0], op.attrs.int(Key::N).map_or(1, |n| n as u64)),
        Reduce | Scan => match op.attrs.sym(Key::Kind).and_then(ReduceKind::from_name) {
            Some(ReduceKind::Sum | ReduceKind::Max | ReduceKind::Min) => d[0],
            _ => 1,
        },
        kind if kind.is_elementwise() => {
            let ranges: Vec<Range> = x.iter().map(|f| f.range.unwrap_or(Range::new(i128::MIN, i128::MAX))).collect();
            let from = op.operands.first().and_then(|&v| kernel.ty(v).as_tile());
            divisor::elementwise(kind, from.map_or(64, |t| t.elem.bits()), d, &ranges)
        }
        _ => 1,
    }
}

/// What divides the first element of every row before it wraps, if more is known than of all.
fn divides_first(kernel: &Kernel, op: &Op, x: &[Fact], first: &[u64], exact: Range) -> Option<u64> {
    if op.kind == Iota {
        return Some(0);
    }
    let from = op.operands.first().and_then(|&v| kernel.ty(v).as_tile())?;
    let last = from.rank().checked_sub(1);
    match op.kind {
        Broadcast | ConvertLayout => Some(first[0]),
        Slice => {
            let start = op.attrs.int(Key::Start)?;
            (op.attrs.int(Key::Axis)? as usize != last? || start == 0).then_some(first[0])
        }
        Cat if op.attrs.int(Key::Axis)? as usize == last? => Some(first[0]),
        // Row starts of longer rows are row starts of the shorter ones.
        Reshape => {
            let to = kernel.ty(op.result()).as_tile()?;
            to.shape.last()?.is_multiple_of(from.shape[last?]).then_some(first[0])
        }
        Permute => (*op.attrs.ints(Key::Perm)?.last()? as usize == last?).then_some(first[0]),
        Cat | MultipleOf => Some(divides(kernel, op, x, first, exact)),
        kind if kind.is_elementwise() => Some(divides(kernel, op, x, first, exact)),
        _ => None,
    }
}
