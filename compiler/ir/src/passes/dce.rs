//! Dead code elimination: what no effect needs goes, values carried by loops and given by branches included.
//!
//! A value is live if an op that is needed uses it. A carried value is live only if its result or its argument is: one
//! that feeds nothing but itself is dead. A loop without effects whose results are unused goes even if it would not end.

use super::canonicalise::control::keep_carried;
use crate::{
    kernel::{Kernel, Op, Region, Value},
    ops::{Effect, OpKind},
};

pub(super) fn run(kernel: &mut Kernel) -> bool {
    let mut live = Live { values: vec![false; kernel.types.len()], changed: true };
    // Liveness grows through the back edges of loops until it is stable.
    while std::mem::take(&mut live.changed) {
        live.region(&kernel.body);
    }
    live.sweep(&mut kernel.body)
}

struct Live {
    values: Vec<bool>,
    changed: bool,
}

/// Whether an op does more than give values.
fn acts(op: &Op) -> bool {
    op.kind.info().effect == Effect::Write || op.regions.iter().any(|r| r.ops.iter().any(acts))
}

impl Live {
    fn is(&self, v: Value) -> bool {
        self.values[v.0 as usize]
    }
    fn mark(&mut self, v: Value) {
        self.changed |= !std::mem::replace(&mut self.values[v.0 as usize], true);
    }
    fn mark_all(&mut self, values: &[Value]) {
        values.iter().for_each(|&v| self.mark(v));
    }
    fn needed(&self, op: &Op) -> bool {
        op.results.iter().any(|&v| self.is(v)) || acts(op)
    }

    /// Whether the i-th carried value of a loop, or result of a branch, is live.
    fn carries(&self, op: &Op, i: usize) -> bool {
        let args = match op.kind {
            OpKind::For => vec![op.regions[0].args[1 + i]],
            OpKind::While => vec![op.regions[0].args[i], op.regions[1].args[i]],
            _ => vec![],
        };
        self.is(op.results[i]) || args.iter().any(|&v| self.is(v))
    }

    fn region(&mut self, r: &Region) {
        for op in r.ops.iter().rev() {
            if self.needed(op) {
                self.op(op);
            }
        }
    }

    fn op(&mut self, op: &Op) {
        // How many operands come before the initial values.
        let fixed = match op.kind {
            OpKind::For => 3,
            OpKind::While => 0,
            OpKind::If => 1,
            _ => op.operands.len(),
        };
        self.mark_all(&op.operands[..fixed]);
        match op.kind {
            OpKind::For | OpKind::While | OpKind::If => {
                for i in 0..op.results.len() {
                    if self.carries(op, i) {
                        if let Some(&init) = op.operands.get(fixed + i) {
                            self.mark(init);
                        }
                        let giving =
                            if op.kind == OpKind::If { &op.regions[..] } else { &op.regions[op.regions.len() - 1..] };
                        giving.iter().for_each(|r| self.mark(r.yields[i]));
                    }
                }
                if op.kind == OpKind::While {
                    self.mark(op.regions[0].yields[0]);
                }
            }
            _ => op.regions.iter().for_each(|r| self.mark_all(&r.yields)),
        }
        op.regions.iter().for_each(|r| self.region(r));
    }

    fn sweep(&self, r: &mut Region) -> bool {
        let before = r.ops.len();
        r.ops.retain(|op| self.needed(op));
        let mut changed = r.ops.len() < before;
        for op in &mut r.ops {
            if matches!(op.kind, OpKind::For | OpKind::While | OpKind::If) {
                let kept: Vec<usize> = (0..op.results.len()).filter(|&i| self.carries(op, i)).collect();
                if kept.len() < op.results.len() {
                    keep_carried(op, &kept);
                    changed = true;
                }
            }
            for r in &mut op.regions {
                changed |= self.sweep(r);
            }
        }
        changed
    }
}
