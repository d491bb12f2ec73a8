//! How many registers a thread needs, estimated from the tiles that are alive at once.

use super::{Layouts, image, streams};
use crate::{
    kernel::{Kernel, Op, Region, Value},
    loc::Loc,
    ops::OpKind,
};
use std::collections::{HashMap, HashSet};

/// Registers of 32 bits that a thread has, at most.
const THREAD_REGISTERS: usize = 255;

/// Registers of 32 bits that a multiprocessor has for all threads of a program.
const FILE_REGISTERS: usize = 65_536;

/// Registers of 32 bits that a thread of a program on so many warps may use.
pub fn registers_on(warps: usize) -> usize {
    (FILE_REGISTERS / (warps * 32)).min(THREAD_REGISTERS)
}

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
        let mut w = Walk {
            cost: HashMap::new(),
            root: HashMap::new(),
            most: Pressure { registers: 0, op: "kernel", loc: Loc::unknown() },
        };
        for i in 0..k.types.len() as u32 {
            if let (Some(t), Some(l)) = (k.types[i as usize].as_tile(), layouts.get(Value(i))) {
                w.cost.insert(Value(i), l.regs() * t.elem.bytes().div_ceil(4));
            }
        }
        k.body.walk(&mut |op| w.cheap(k, layouts, op));
        for v in streams(k).keys() {
            w.cost.insert(*v, 0);
        }
        let mut live = HashSet::new();
        w.region(&k.body, &mut live);
        w.most
    }
}

struct Walk {
    cost: HashMap<Value, usize>,
    /// Values that are other values' registers, and whose.
    root: HashMap<Value, Value>,
    most: Pressure,
}

impl Walk {
    /// Results that need no registers of their own, or one for all elements.
    fn cheap(&mut self, k: &Kernel, layouts: &Layouts, op: &Op) {
        let single = |v: &Value| k.ty(*v).as_tile().is_some_and(|t| t.len() == 1);
        match op.kind {
            OpKind::Const | OpKind::Iota => {
                self.cost.insert(op.results[0], 1);
            }
            OpKind::Broadcast | OpKind::Permute | OpKind::Reshape => {
                let (from, to) = (op.operands[0], op.results[0]);
                let (Some(a), Some(b)) = (k.ty(from).as_tile(), k.ty(to).as_tile()) else { return };
                let moves =
                    op.kind == OpKind::Reshape && layouts.get(from).is_none_or(|l| image(op, a, b, l).is_none());
                if !moves || single(&from) {
                    self.root.insert(to, *self.root.get(&from).unwrap_or(&from));
                }
            }
            _ => {}
        }
    }

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
        let values: HashSet<&Value> = live.map(|v| self.root.get(v).unwrap_or(v)).collect();
        let registers = values.into_iter().filter_map(|v| self.cost.get(v)).sum();
        if registers > self.most.registers {
            self.most = Pressure { registers, op: op.kind.name(), loc: op.loc.clone() };
        }
    }
}
