//! Numbers that depend on the thread: which elements it holds.
//!
//! A linear function of the bits of the thread's number is a few shifts and masks: all bits that move by the same
//! distance go together.

use super::{
    super::build::{Cmp, V},
    cx::{Cx, Piece},
};
use tegula_ir::linear::Linear;

impl<'a, 'c> Cx<'a, 'c> {
    /// The exclusive or of the images of the set bits of the thread's number: i32, made once, at the kernel's start.
    pub fn of_thread(&mut self, images: &[u64]) -> V<'c> {
        if let Some(v) = self.by_thread.get(images) {
            return *v;
        }
        let (b, tid) = (self.b, self.tid);
        // Which bits of the thread's number land how far from where they are.
        let mut moves: std::collections::BTreeMap<i64, i64> = std::collections::BTreeMap::new();
        for (i, image) in images.iter().enumerate() {
            for o in (0..u64::BITS).filter(|o| image >> o & 1 != 0) {
                *moves.entry(i64::from(o) - i as i64).or_insert(0) |= 1 << i;
            }
        }
        let v = b.at_level(0, || {
            let terms = moves.iter().map(|(by, mask)| {
                let x = b.and_c(tid, *mask);
                if *by < 0 { b.shru_c(x, -by) } else { b.shl_c(x, *by) }
            });
            terms.reduce(|x, y| b.xor(x, y)).unwrap_or_else(|| b.c32(0))
        });
        self.by_thread.insert(images.to_vec(), v);
        v
    }

    /// Where register `reg` of a piece is along an axis of its tile: a part that depends on the thread (i32), and a
    /// constant to be added.
    pub fn coordinate(&mut self, piece: &Piece, axis: usize, reg: usize) -> (V<'c>, i64) {
        let images: Vec<u64> = piece.layout.threads().iter().map(|v| piece.axes.coordinate(axis, *v)).collect();
        let own = piece.axes.coordinate(axis, piece.layout.of_reg(reg));
        let touched = images.iter().fold(0, |a, v| a | v);
        let thread = self.of_thread(&images);
        let start = piece.start(axis) as i64;
        // Exclusive or is a sum where no bit meets another.
        if own & touched == 0 {
            (thread, start + own as i64)
        } else {
            (self.b.xor(thread, self.b.c32(own as i32)), start)
        }
    }

    /// The same as one i32.
    pub fn index(&mut self, piece: &Piece, axis: usize, reg: usize) -> V<'c> {
        let (v, c) = self.coordinate(piece, axis, reg);
        self.b.add_c(v, c)
    }

    /// Whether this thread is the one that stores its elements, where several hold copies; `None` if none do.
    pub fn is_owner(&mut self, layout: &Linear) -> Option<V<'c>> {
        let mask = layout.redundant_threads();
        let b = self.b;
        (mask != 0).then(|| b.at_level(0, || b.cmp(Cmp::Eq, b.and_c(self.tid, mask as i64), b.c32(0))))
    }

    /// Runs `f` in the threads that own the elements of a layout.
    pub fn by_owners(&mut self, layout: &Linear, f: impl FnOnce(&mut Self)) {
        match self.is_owner(layout) {
            Some(owner) => self.b.when(owner, || f(self)),
            None => f(self),
        }
    }
}
