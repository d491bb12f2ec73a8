//! Common subexpression elimination: an op that repeats a visible one gives its value.
//!
//! Regions see what the regions around them have computed, never the other way. Reads of memory are equal while
//! nothing is written in between: any write ends them all, since views may overlap. A combiner's region stands alone, so
//! that it stays a function of its arguments.

use super::canonicalise::exchanged;
use crate::{
    attr::Attrs,
    kernel::{Kernel, Op, Region, Value},
    ops::{Effect, OpKind},
    types::Type,
};
use std::{collections::HashMap, mem};

pub(super) fn run(kernel: &mut Kernel) -> bool {
    let mut body = mem::take(&mut kernel.body);
    let mut cse = Cse { types: &kernel.types, known: HashMap::new(), replaced: HashMap::new(), written: 0, last: 0 };
    cse.region(&mut body);
    let changed = !cse.replaced.is_empty();
    kernel.body = body;
    changed
}

/// What makes two ops equal. `written` tells states of memory apart; it is 0 for pure ops.
#[derive(PartialEq, Eq, Hash, Clone)]
struct Meaning {
    kind: OpKind,
    operands: Vec<Value>,
    attrs: Attrs,
    results: Vec<Type>,
    written: u32,
}

struct Cse<'k> {
    types: &'k [Type],
    known: HashMap<Meaning, Vec<Value>>,
    replaced: HashMap<Value, Value>,
    /// The state of memory now, and the last number given to one.
    written: u32,
    last: u32,
}

/// Whether an op may change memory that a view can read.
fn writes(op: &Op) -> bool {
    let here =
        op.kind.info().effect == Effect::Write && !matches!(op.kind, OpKind::Assume | OpKind::Assert | OpKind::Print);
    here || op.regions.iter().any(|r| r.ops.iter().any(writes))
}

impl Cse<'_> {
    fn now(&self, v: Value) -> Value {
        self.replaced.get(&v).copied().unwrap_or(v)
    }
    fn memory_changes(&mut self) {
        self.last += 1;
        self.written = self.last;
    }

    fn region(&mut self, r: &mut Region) {
        let mut added = vec![];
        for mut op in mem::take(&mut r.ops) {
            op.operands.iter_mut().for_each(|v| *v = self.now(*v));
            if !op.regions.is_empty() {
                self.control(&mut op);
            } else if matches!(op.kind.info().effect, Effect::Pure | Effect::Read) {
                let meaning = self.meaning(&op);
                if let Some(values) = self.known.get(&meaning) {
                    self.replaced.extend(op.results.iter().copied().zip(values.iter().copied()));
                    continue;
                }
                self.known.insert(meaning.clone(), op.results.clone());
                added.push(meaning);
            } else if writes(&op) {
                self.memory_changes();
            }
            r.ops.push(op);
        }
        r.yields.iter_mut().for_each(|v| *v = self.now(*v));
        // What the region computed is not visible after it.
        added.iter().for_each(|m| drop(self.known.remove(m)));
    }

    fn control(&mut self, op: &mut Op) {
        if matches!(op.kind, OpKind::ReduceWith | OpKind::ScanWith) {
            let outer = mem::take(&mut self.known);
            op.regions.iter_mut().for_each(|r| self.region(r));
            self.known = outer;
            return;
        }
        let (before, writes) = (self.written, writes(op));
        for r in &mut op.regions {
            // A round of a loop starts after the writes of the one before; a branch starts where the `if` does.
            match op.kind {
                OpKind::If => self.written = before,
                _ if writes => self.memory_changes(),
                _ => {}
            }
            self.region(r);
        }
        if writes {
            self.memory_changes();
        }
    }

    fn meaning(&self, op: &Op) -> Meaning {
        let mut operands = op.operands.clone();
        if let &[x, _] = op.operands.as_slice()
            && let Type::Tile(t) = &self.types[x.0 as usize]
            && exchanged(op.kind, t.elem) == Some(op.kind)
        {
            operands.sort();
        }
        let results = op.results.iter().map(|v| self.types[v.0 as usize].clone()).collect();
        let written = if op.kind.info().effect == Effect::Read { self.written } else { 0 };
        Meaning { kind: op.kind, operands, attrs: op.attrs.clone(), results, written }
    }
}
