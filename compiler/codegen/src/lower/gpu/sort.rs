//! `sort` and `topk`: each element counts those that come before it in its row, which is its place.

use super::{
    super::{
        arith::before,
        build::{Cmp, V},
    },
    Error,
    cx::Cx,
    stage::{Staged, bytes, strides},
};
use tegula_ir::{Elem, Key, Op, OpKind};

impl<'a, 'c> Cx<'a, 'c> {
    /// `sort`, `topk`.
    pub fn sort(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let (source, t) = (op.operands[0], self.tile(op.operands[0]).clone());
        let (axis, n) = (t.rank() - 1, t.shape[t.rank() - 1]);
        let descending = op.kind == OpKind::TopK || op.attrs.has(Key::Descending);
        let keep = self.tile(op.results[0]).shape[axis];
        let place = |e: Elem| bytes(&self.tile(op.results[0]).shape, keep, e).next_multiple_of(16);
        let more: usize = op.results.iter().map(|v| place(self.elem(*v))).sum();
        let inputs = bytes(&t.shape, n, t.elem).next_multiple_of(16);
        let mut at = inputs;
        let (mut sorted, mut ends) = (vec![], vec![]);
        for v in &op.results {
            let to = self.tile(*v);
            ends.push((at, bytes(&to.shape, keep, to.elem)));
            sorted.push(Staged {
                base: self.shared_at(at),
                elem: to.elem,
                shape: to.shape.clone(),
                strides: strides(&to.shape, keep),
            });
            at += place(to.elem);
        }
        let rows = self.staged_with(op, &[source], &[n], more)[0].clone();
        ends.into_iter().for_each(|(start, size)| self.fill_up(start, size));
        let regs = self.regs(source);
        for (piece, regs) in self.pieces(source).iter().zip(&regs) {
            let coordinates: Vec<Vec<V>> =
                (0..regs.len()).map(|r| (0..t.rank()).map(|d| self.index(piece, d, r)).collect()).collect();
            let line = |s: &Staged<'c>, at: &[V<'c>]| {
                let outer = (0..axis).map(|d| b.mul_c(at[d], s.strides[d] as i64));
                outer.reduce(|x, y| b.add(x, y)).unwrap_or_else(|| b.c32(0))
            };
            // The ranks of all registers in one walk along the rows.
            let starts: Vec<V> = coordinates.iter().map(|c| line(&rows, c)).collect();
            let zeros = vec![b.c32(0); regs.len()];
            let ranks = b.for_(b.c64(0), b.c64(n as i64), b.c64(1), &zeros, |j, ranks| {
                let j = b.trunci(j, b.i32());
                (0..regs.len())
                    .map(|r| {
                        let (x, y) = (regs[r], self.staged_at(&rows, b.add(starts[r], j)));
                        let tie = b.not(before(b, t.elem, descending, x, y));
                        let tie = b.and(tie, b.cmp(Cmp::Slt, j, coordinates[r][axis]));
                        let first = b.or(before(b, t.elem, descending, y, x), tie);
                        b.add(ranks[r], b.zext(first, b.i32()))
                    })
                    .collect()
            });
            self.by_owners(&piece.layout, |cx| {
                for (r, rank) in ranks.iter().enumerate() {
                    let put = || {
                        let flat = b.add(line(&sorted[0], &coordinates[r]), *rank);
                        cx.put_staged(&sorted[0], flat, regs[r]);
                        if let Some(indices) = sorted.get(1) {
                            cx.put_staged(indices, flat, coordinates[r][axis]);
                        }
                    };
                    if keep == n { put() } else { b.when(b.cmp(Cmp::Slt, *rank, b.c32(keep as i32)), put) }
                }
            });
        }
        self.shared_written();
        for (v, s) in op.results.iter().zip(&sorted) {
            let pieces = self.pieces(*v);
            let regs = self.read_staged(s, &pieces);
            self.set_regs(*v, regs)?;
        }
        Ok(())
    }
}
