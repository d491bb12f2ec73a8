//! How many registers a thread needs, estimated from the tiles that are alive at once.

use super::Layouts;
use crate::{
    kernel::{Kernel, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
};
use std::collections::{HashMap, HashSet};

/// Registers of 32 bits that a thread has.
pub const THREAD_REGISTERS: usize = 255;

/// The most registers of 32 bits that a thread's tiles take at once, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How many.
    pub registers: usize,
    /// The op at which.
    pub op: &'static str,
    /// Its line.
    pub loc: Loc,
}

impl Pressure {
    /// Of a kernel with layouts. Addresses, counters and what an op needs for itself come on top.
    pub fn of(k: &Kernel, layouts: &Layouts) -> Pressure {
        let mut w = Walk { cost: HashMap::new(), most: Pressure { registers: 0, op: "kernel", loc: Loc::unknown() } };
        for i in 0..k.types.len() as u32 {
            if let (Some(t), Some(l)) = (k.types[i as usize].as_tile(), layouts.get(Value(i))) {
                w.cost.insert(Value(i), l.regs() * t.elem.bytes().div_ceil(4));
            }
        }
        // A constant is one register for all elements, or none.
        k.body.walk(&mut |op| {
            if op.kind == OpKind::Const {
                w.cost.insert(op.results[0], 1);
            }
        });
        let mut live = HashSet::new();
        w.region(&k.body, &mut live);
        w.most
    }
}

struct Walk {
    cost: HashMap<Value, usize>,
    most: Pressure,
}

impl Walk {
    /// From the end: `live` is what is wanted after the region, and becomes what is wanted before it.
    fn region(&mut self, r: &Region, live: &mut HashSet<Value>) {
        live.extend(&r.yields);
        for op in r.ops.iter().rev() {
            self.look(op, live.iter().chain(&op.results));
            op.results.iter().for_each(|v| {
                live.remove(v);
            });
            if !matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith) {
                let after = live.clone();
                for inner in &op.regions {
                    let mut before = after.clone();
                    // What a loop's body uses from outside is alive through all of it.
                    inner.walk(&mut |op| before.extend(&op.operands));
                    self.region(inner, &mut before);
                    live.extend(before);
                }
            }
            live.extend(&op.operands);
            self.look(op, live.iter());
        }
        r.args.iter().for_each(|v| {
            live.remove(v);
        });
    }

    fn look<'v>(&mut self, op: &Op, live: impl Iterator<Item = &'v Value>) {
        let values: HashSet<&Value> = live.collect();
        let registers = values.into_iter().filter_map(|v| self.cost.get(v)).sum();
        if registers > self.most.registers {
            self.most = Pressure { registers, op: op.kind.name(), loc: op.loc.clone() };
        }
    }
}
