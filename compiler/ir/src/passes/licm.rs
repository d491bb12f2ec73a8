//! Loop-invariant code motion: what every round computes alike is computed once, before the loop.
//!
//! Only pure ops directly in a loop's body move, and only such as may run although the loop does not: no division or
//! index that a checked launch might report, no `multiple_of` that the oracle checks. Scalars and parts of views always move. Tiles move when they cost
//! more than an arithmetic op an element: a cheap tile is better made again inside the loop, where it fuses with its use,
//! than kept in memory across it.

use super::fold::value;
use crate::{
    attr::Key,
    kernel::{Kernel, Op, Region, Value},
    ops::{Effect, OpKind},
    scalar::Scalar,
    types::Type,
};
use std::{
    collections::{HashMap, HashSet},
    mem,
};

pub(super) fn run(kernel: &mut Kernel) -> bool {
    let mut constants = HashMap::new();
    kernel.body.walk(&mut |op| {
        if let (OpKind::Const, Some(s)) = (op.kind, op.attrs.scalar(Key::Value)) {
            constants.insert(op.result(), s);
        }
    });
    let mut body = mem::take(&mut kernel.body);
    let changed = Licm { kernel, constants }.region(&mut body);
    kernel.body = body;
    changed
}

struct Licm<'k> {
    kernel: &'k Kernel,
    constants: HashMap<Value, Scalar>,
}

impl Licm<'_> {
    fn region(&self, r: &mut Region) -> bool {
        let mut changed = false;
        for mut op in mem::take(&mut r.ops) {
            // Inner loops first: what leaves them may leave this one too.
            for inner in &mut op.regions {
                changed |= self.region(inner);
            }
            if matches!(op.kind, OpKind::For | OpKind::While) {
                let moved = self.moving(&mut op);
                changed |= !moved.is_empty();
                r.ops.extend(moved);
            }
            r.ops.push(op);
        }
        changed
    }

    /// Takes the ops that may move out of a loop, in order.
    fn moving(&self, looping: &mut Op) -> Vec<Op> {
        let mut inside: HashSet<Value> = HashSet::new();
        for r in &looping.regions {
            inside.extend(&r.args);
            r.walk(&mut |op| {
                inside.extend(&op.results);
                op.regions.iter().for_each(|r| inside.extend(&r.args));
            });
        }
        // Everything invariant; then of that what is worth it, with all that it needs.
        let mut invariant: HashSet<Value> = HashSet::new();
        for op in looping.regions.iter().flat_map(|r| &r.ops) {
            if self.may_move(op) && op.operands.iter().all(|v| !inside.contains(v) || invariant.contains(v)) {
                invariant.extend(&op.results);
            }
        }
        let mut wanted: HashSet<Value> = HashSet::new();
        for op in looping.regions.iter().rev().flat_map(|r| r.ops.iter().rev()) {
            let is_invariant = op.results.iter().any(|v| invariant.contains(v));
            if is_invariant && (self.worth_it(op) || op.results.iter().any(|v| wanted.contains(v))) {
                wanted.extend(&op.results);
                wanted.extend(&op.operands);
            }
        }
        let mut moved = vec![];
        for r in &mut looping.regions {
            let (out, stay) = mem::take(&mut r.ops)
                .into_iter()
                .partition(|op| op.results.iter().any(|v| invariant.contains(v) && wanted.contains(v)));
            moved.extend::<Vec<Op>>(out);
            r.ops = stay;
        }
        moved
    }

    fn may_move(&self, op: &Op) -> bool {
        let reports = match op.kind {
            OpKind::MultipleOf | OpKind::Take => true,
            OpKind::Div | OpKind::Rem => {
                let by = op.operands[1];
                let whole = self.kernel.ty(by).as_tile().is_some_and(|t| !t.elem.is_float());
                whole && !self.constants.get(&by).is_some_and(|&s| !matches!(value(s), 0 | -1))
            }
            _ => false,
        };
        op.kind.info().effect == Effect::Pure && op.regions.is_empty() && !reports
    }

    fn worth_it(&self, op: &Op) -> bool {
        use OpKind::*;
        let scalars = op.results.iter().all(|&v| match self.kernel.ty(v) {
            Type::Tile(t) => t.rank() == 0,
            Type::View(_) => true,
            _ => false,
        });
        let costly = matches!(
            op.kind,
            Exp | Exp2
                | Log
                | Log2
                | Sin
                | Cos
                | Tanh
                | Erf
                | Sqrt
                | Rsqrt
                | Sigmoid
                | Pow
                | Div
                | Rem
                | Reduce
                | Scan
                | Sort
                | TopK
                | Histogram
                | Dot
                | DotGrouped
        );
        scalars || costly
    }
}
