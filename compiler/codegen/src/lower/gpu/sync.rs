//! Barriers. Within a thread memory accesses keep their order; between threads of a block only a barrier makes one see
//! what another did. So the lowering keeps a record of what happened since the last barrier, and puts one in where an
//! access may meet an earlier one of another thread.
//!
//! Shared memory is used for one move at a time, from its start: write, barrier, read. The next write waits until all have
//! read.

use super::{
    super::build::V,
    cx::{Cx, Home, ViewVal},
};
use std::collections::HashSet;
use tegula_ir::{Op, OpKind, Region, Value, linear::TileLayout};

/// A read of a view by all threads, each its own elements.
#[derive(Clone, Debug, PartialEq)]
struct Read<'c> {
    root: Value,
    base: V<'c>,
    position: Vec<V<'c>>,
    layout: TileLayout,
}

/// What happened since the last barrier.
#[derive(Clone, Debug, Default)]
pub struct Pending<'c> {
    /// Parameters written.
    written: HashSet<Value>,
    /// Parameters read, but for the reads of `own`.
    read: HashSet<Value>,
    own: Vec<Read<'c>>,
    /// Shared memory was read.
    shared: bool,
}

impl<'c> Pending<'c> {
    fn join(&mut self, other: Pending<'c>) {
        self.written.extend(other.written);
        self.read.extend(other.read);
        self.own.extend(other.own);
        self.shared |= other.shared;
    }
}

impl<'a, 'c> Cx<'a, 'c> {
    /// All threads of the block meet; what each did is seen by all.
    pub fn barrier(&mut self) {
        self.b.intrinsic_n("llvm.nvvm.barrier.cta.sync.aligned.all", &[self.b.c32(0)], &[]);
        self.pending = Pending::default();
    }

    /// Before a read of a view. `place` is the position and layout of a tile of which each thread reads its elements.
    pub fn before_read(&mut self, view: &ViewVal<'c>, place: Option<(&[V<'c>], &TileLayout)>) {
        if !view.mutable {
            return;
        }
        if self.pending.written.contains(&view.root) {
            self.barrier();
        }
        match place {
            Some((position, layout)) => self.pending.own.push(Read {
                root: view.root,
                base: view.base,
                position: position.to_vec(),
                layout: layout.clone(),
            }),
            None => {
                self.pending.read.insert(view.root);
            }
        }
    }

    /// Before a write of a view, likewise. A thread may write what it alone has read.
    pub fn before_write(&mut self, view: &ViewVal<'c>, place: Option<(&[V<'c>], &TileLayout)>) {
        let alone = |r: &Read<'c>| {
            place.is_some_and(|(position, layout)| {
                r.base == view.base
                    && r.position == position
                    && r.layout == *layout
                    && layout.0.iter().all(|l| l.redundant_threads() == 0)
            })
        };
        let p = &self.pending;
        let meets = p.written.contains(&view.root)
            || p.read.contains(&view.root)
            || p.own.iter().any(|r| r.root == view.root && !alone(r));
        if meets {
            self.barrier();
        }
        self.pending.written.insert(view.root);
    }

    /// Before shared memory is written: `bytes` of it are wanted for `op`.
    pub fn begin_shared(&mut self, bytes: usize, op: &Op) {
        if bytes > self.shared_top {
            self.shared_top = bytes;
            self.shared_by = Some(op.clone());
        }
        if self.pending.shared {
            self.barrier();
        }
    }
    /// After it is written, before it is read.
    pub fn shared_written(&mut self) {
        self.barrier();
        self.pending.shared = true;
    }

    /// What may be pending at the start of a loop's body besides what is: all that the body itself does.
    pub fn enter_loop(&mut self, regions: &[Region]) {
        let mut p = Pending { shared: true, ..Pending::default() };
        regions.iter().for_each(|r| self.touched(r, &mut p));
        self.pending.join(p);
    }

    fn touched(&self, r: &Region, p: &mut Pending<'c>) {
        // Views made inside the loop are parts of parameters: trace them back.
        let mut roots = std::collections::HashMap::new();
        r.walk(&mut |op| {
            let root = |v: &Value, roots: &std::collections::HashMap<Value, Value>| {
                roots.get(v).copied().or_else(|| match self.known(*v) {
                    Some(Home::View(view)) => Some(view.root),
                    _ => None,
                })
            };
            let Some(at) = op.operands.first().and_then(|v| root(v, &roots)) else { return };
            match op.kind {
                OpKind::Narrow => {
                    roots.insert(op.results[0], at);
                }
                OpKind::Load | OpKind::Gather => {
                    p.read.insert(at);
                }
                OpKind::Store | OpKind::Scatter | OpKind::Atomic | OpKind::AtomicCas => {
                    p.written.insert(at);
                }
                _ => {}
            }
        });
    }

    /// The record, for a caller that runs branches.
    pub fn pending_now(&self) -> Pending<'c> {
        self.pending.clone()
    }
    /// Adds a record.
    pub fn pending_also(&mut self, other: Pending<'c>) {
        self.pending.join(other);
    }
    /// Puts a record in place of what is there, and gives that.
    pub fn pending_swap(&mut self, other: Pending<'c>) -> Pending<'c> {
        std::mem::replace(&mut self.pending, other)
    }
}
