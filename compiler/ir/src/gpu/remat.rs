//! Values that cost nothing to make again are made once for each use, so that each use may have them where it likes:
//! constants, counters, scalars spread over a tile, and shape ops on those.

use crate::{
    gpu::is_elementwise,
    kernel::{Kernel, Op, Region, Value},
    ops::OpKind,
    types::Type,
};
use std::collections::{HashMap, HashSet};

/// Gives each use of a cheap tile a copy of its own.
pub(super) fn per_use(k: &mut Kernel) {
    let mut cheap = HashSet::new();
    find(k, &k.body, &mut cheap);
    let mut body = std::mem::take(&mut k.body);
    let mut copies = Copies { kernel: k, cheap: &cheap, wanted: HashMap::new(), seen: HashSet::new() };
    copies.region(&mut body);
    k.body = body;
}

fn is_single(k: &Kernel, v: Value) -> bool {
    matches!(k.ty(v), Type::Tile(t) if t.len() == 1)
}

fn find(k: &Kernel, r: &Region, cheap: &mut HashSet<Value>) {
    for op in &r.ops {
        op.regions.iter().for_each(|r| find(k, r, cheap));
        let of_cheap = |cheap: &HashSet<Value>| op.operands.iter().all(|v| cheap.contains(v) || is_single(k, *v));
        let yes = match op.kind {
            OpKind::Const | OpKind::Iota => true,
            OpKind::Broadcast | OpKind::Reshape | OpKind::Permute => of_cheap(cheap),
            // Index arithmetic: cheaper than any conversion.
            kind if is_elementwise(kind) => {
                matches!(kind, OpKind::Add | OpKind::Mul | OpKind::Sub | OpKind::Cast | OpKind::MultipleOf)
                    && matches!(k.ty(op.results[0]), Type::Tile(t) if t.elem.is_int())
                    && of_cheap(cheap)
            }
            _ => false,
        };
        if yes && !is_single(k, op.results[0]) {
            cheap.insert(op.results[0]);
        }
    }
}

/// Walks from the end: a use is seen before its definition.
struct Copies<'k> {
    kernel: &'k mut Kernel,
    cheap: &'k HashSet<Value>,
    /// Copies of a value that its uses were given.
    wanted: HashMap<Value, Vec<Value>>,
    /// Values used already: the first use met keeps the original.
    seen: HashSet<Value>,
}

impl Copies<'_> {
    fn region(&mut self, r: &mut Region) {
        r.yields.iter_mut().for_each(|v| self.use_of(v));
        let mut out: Vec<Op> = vec![];
        for mut op in std::mem::take(&mut r.ops).into_iter().rev() {
            let copies = op.results.first().and_then(|v| self.wanted.remove(v)).unwrap_or_default();
            for v in copies {
                let mut copy = Op { results: vec![v], ..op.clone() };
                copy.operands.iter_mut().for_each(|v| self.use_of(v));
                out.push(copy);
            }
            op.regions.iter_mut().rev().for_each(|r| self.region(r));
            op.operands.iter_mut().for_each(|v| self.use_of(v));
            out.push(op);
        }
        out.reverse();
        r.ops = out;
    }

    fn use_of(&mut self, v: &mut Value) {
        if self.cheap.contains(v) && !self.seen.insert(*v) {
            let fresh = self.kernel.value(self.kernel.ty(*v).clone());
            self.wanted.entry(*v).or_default().push(fresh);
            *v = fresh;
        }
    }
}
