//! Which tiles must be in the same registers: elementwise ops, control flow and accesses by index tiles tie their tiles
//! together.

use crate::{
    gpu::is_elementwise,
    kernel::{Kernel, Op, Value},
    ops::OpKind,
    types::Type,
};

/// Disjoint sets of values.
pub(super) struct Classes {
    parent: Vec<u32>,
}

impl Classes {
    /// The classes of a kernel.
    pub fn of(k: &Kernel) -> Classes {
        let mut c = Classes { parent: (0..k.types.len() as u32).collect() };
        k.body.walk(&mut |op| c.tie(k, op));
        c
    }
    /// The value that stands for a value's class.
    pub fn root(&self, v: Value) -> Value {
        let mut i = v.0;
        while self.parent[i as usize] != i {
            i = self.parent[i as usize];
        }
        Value(i)
    }
    fn union(&mut self, k: &Kernel, a: Value, b: Value) {
        let (Type::Tile(x), Type::Tile(y)) = (k.ty(a), k.ty(b)) else { return };
        if x.shape != y.shape {
            return;
        }
        let (a, b) = (self.root(a), self.root(b));
        // The earlier value stands for the class, whatever the order of ties.
        self.parent[a.0.max(b.0) as usize] = a.0.min(b.0);
    }
    fn all<'v>(&mut self, k: &Kernel, values: impl IntoIterator<Item = &'v Value>) {
        let mut values = values.into_iter();
        let Some(first) = values.next() else { return };
        values.for_each(|v| self.union(k, *first, *v));
    }
    fn pairs(&mut self, k: &Kernel, a: &[Value], b: &[Value]) {
        a.iter().zip(b).for_each(|(a, b)| self.union(k, *a, *b));
    }

    fn tie(&mut self, k: &Kernel, op: &Op) {
        match op.kind {
            OpKind::For => {
                let body = &op.regions[0];
                for other in [&op.operands[3..], &body.args[1..], &body.yields] {
                    self.pairs(k, &op.results, other);
                }
            }
            OpKind::While => {
                let (condition, body) = (&op.regions[0], &op.regions[1]);
                for other in [&op.operands, &condition.args, &body.args, &body.yields] {
                    self.pairs(k, &op.results, other);
                }
            }
            OpKind::If => op.regions.iter().for_each(|r| self.pairs(k, &op.results, &r.yields)),
            OpKind::Dot => self.union(k, op.operands[2], op.results[0]),
            OpKind::DotGrouped => self.union(k, op.operands[4], op.results[0]),
            OpKind::Take => self.union(k, op.operands[1], op.results[0]),
            OpKind::ReduceWith => {
                self.all(k, &op.operands);
                self.all(k, &op.results);
            }
            kind if is_elementwise(kind)
                || matches!(
                    kind,
                    OpKind::Scan
                        | OpKind::ScanWith
                        | OpKind::Gather
                        | OpKind::Scatter
                        | OpKind::Atomic
                        | OpKind::AtomicCas
                        | OpKind::PackedGather
                ) =>
            {
                let tiles = |v: &&Value| matches!(k.ty(**v), Type::Tile(_));
                self.all(k, op.operands.iter().chain(&op.results).filter(tiles));
            }
            _ => {}
        }
    }
}
