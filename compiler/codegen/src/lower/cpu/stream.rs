//! Stores around the caches.
//!
//! A store to a line that no cache holds reads the line first, and later throws out another to make room. A launch that
//! writes more than the caches hold gains nothing from having it there: neither will find it the next kernel. So the nest of a
//! store has a version that streams, which runs when
//!
//! - all of the launch's programs together write at least [`FROM`] bytes there, once each (the store is in no loop or branch),
//! - the kernel reads nothing of the parameter, nor has it atomics, which could tell others of the store too early,
//! - the tile's rows are whole lines of memory.
//!
//! Streaming stores are not ordered with others, so the entry function ends with a fence where there may be some.

use super::{
    build::{Build, Cmp, V},
    cx::Cx,
};
use std::collections::HashMap;
use tegula_ir::{Kernel, Op, OpKind, Value};

/// Bytes that a launch writes through a parameter from which it streams: more than the share that a core has of nearly
/// any processor's last cache.
const FROM: i64 = 128 << 20;

/// Bytes of a line of memory on x86-64.
pub const LINE: usize = 64;

impl<'a, 'c> Cx<'a, 'c> {
    /// Whether a version of the store's nest that streams makes sense at all.
    pub fn may_stream(&self, store: &Op) -> bool {
        let ty = self.tile(store.operands[store.operands.len() - 1]);
        let whole_lines = ty.shape.last().is_some_and(|n| *n > 1 && (n * ty.elem.bytes()).is_multiple_of(LINE));
        self.depth == 0 && whole_lines && only_stored(self.k, store.operands[0])
    }

    /// Whether to run it: i1. The tile must lie inside its view.
    pub fn streams(&mut self, store: &Op) -> V<'c> {
        let (b, view) = (self.b, self.view(store.operands[0]));
        let ty = self.tile(store.operands[store.operands.len() - 1]);
        let bytes = ty.elem.bytes() as i64;
        self.streamed = self.streamed.max(ty.len() as i64 * bytes);
        let much = self.writes_much(ty.len() as i64 * bytes);
        let corner = self.position_of(store, view.extents.len());
        // The addresses of all rows are multiples of a line if no bit below is set in the first one's or in a step.
        let mut low = b.ptr_to_int(view.address(b, &corner));
        for (stride, n) in view.strides.iter().zip(&ty.shape).rev().skip(1) {
            if *n > 1 {
                low = b.or(low, b.mul_c(*stride, bytes));
            }
        }
        b.and(much, b.cmp(Cmp::Eq, b.and_c(low, LINE as i64 - 1), b.c64(0)))
    }

    /// Whether all programs together write at least [`FROM`] bytes: i1.
    fn writes_much(&self, bytes: i64) -> V<'c> {
        let b = self.b;
        let programs = self.grid.map(|n| b.zext(n, b.i64())).into_iter().reduce(|x, y| b.mul(x, y));
        let programs = programs.unwrap_or_else(|| b.c64(1));
        b.cmp(Cmp::Uge, programs, b.c64((FROM as u64).div_ceil(bytes.max(1) as u64) as i64))
    }

    /// At the end of the entry function: whoever is told that the programs have run sees what they stored.
    pub fn fence_streams(&self) {
        if self.streamed > 0 {
            let fence = || {
                self.b.intrinsic_n("llvm.x86.sse.sfence", &[], &[]);
            };
            self.b.when(self.writes_much(self.streamed), fence);
        }
    }
}

/// Whether a kernel without atomics does nothing with the parameter behind `view` but store.
fn only_stored(k: &Kernel, view: Value) -> bool {
    let mut parents = HashMap::new();
    k.body.walk(&mut |op| {
        if op.kind == OpKind::Narrow {
            parents.insert(op.results[0], op.operands[0]);
        }
    });
    let root = |mut v: Value| {
        while let Some(parent) = parents.get(&v) {
            v = *parent;
        }
        v
    };
    let parameter = root(view);
    let mut only = true;
    k.body.walk(&mut |op| {
        let harmless = matches!(op.kind, OpKind::Store | OpKind::Narrow | OpKind::Dim);
        let touched = || op.operands.iter().any(|v| root(*v) == parameter);
        only &= !matches!(op.kind, OpKind::Atomic | OpKind::AtomicCas) && (harmless || !touched());
    });
    only
}

/// Stores a vector around the caches; the address is a multiple of a line plus a multiple of the vector's bytes.
pub fn store<'c>(b: &Build<'c>, x: V<'c>, p: V<'c>, bytes: usize) {
    b.store_streaming(x, p, bytes.min(LINE));
}
