//! `dot_grouped`: the integer product of a group of 32 by eight `dp4a`, then one fused multiply-add.

use super::{
    super::build::{Cmp, V},
    Error,
    cx::{Cx, Home, PackedVal, Piece},
    feed::Chunk,
    packed::Group,
    stage::Staged,
    view::split,
};
use tegula_ir::{Op, layout::GROUP};

/// A product of groups: what it reads besides codes, scales and sums of rows.
struct Grouped<'c> {
    packed: PackedVal<'c>,
    /// Where the rectangle of weights begins, i64.
    k: V<'c>,
    n: V<'c>,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `dot_grouped`.
    pub fn dot_grouped(&mut self, op: &'a Op) -> Result<(), Error> {
        let Home::QTile { packed, k, n, ty } = self.home(op.operands[3]).clone() else {
            return self.error(op, "operand 3 is no rectangle of a packed matrix");
        };
        let (of, length, result) = (Grouped { packed, k, n }, ty.k, op.results[0]);
        // Rows of codes 16 bytes apart in the banks.
        let codes = self.operand(op.operands[0], 1, 1).skewed(16);
        let operands = [codes, self.operand(op.operands[1], 1, GROUP), self.operand(op.operands[2], 1, GROUP)];
        let init = self.convert_to(op, op.operands[4], result);
        let pieces = self.pieces(result);
        let counts: Vec<usize> = pieces.iter().map(|p| p.layout.regs()).collect();
        let out = self.by_chunks(op, &operands, (length, GROUP), &init.concat(), &mut |cx, staged, chunk, acc| {
            let parts = pieces.iter().zip(split(acc, &counts));
            parts.flat_map(|(piece, acc)| cx.grouped(&of, staged, chunk, piece, &acc)).collect()
        });
        self.set_regs(result, split(&out, &counts))
    }

    /// The outputs of a piece after a chunk.
    fn grouped(
        &mut self,
        of: &Grouped<'c>,
        staged: &[Staged<'c>],
        chunk: Chunk<'c>,
        piece: &Piece,
        acc: &[V<'c>],
    ) -> Vec<V<'c>> {
        let b = self.b;
        let groups = chunk.len / GROUP;
        let first = b.shru_c(b.add(of.k, chunk.first), 5);
        let count = piece.layout.regs();
        // Rows and columns of the thread's block, each once.
        let at: Vec<[V; 2]> = (0..count).map(|r| [self.index(piece, 0, r), self.index(piece, 1, r)]).collect();
        let flat = |r: usize, d: usize| piece.axes.coordinate(d, piece.layout.of_reg(r));
        let firsts = |d: usize| {
            let mut known: Vec<(u64, usize)> = vec![];
            (0..count).for_each(|r| {
                if !known.iter().any(|(c, _)| *c == flat(r, d)) {
                    known.push((flat(r, d), r));
                }
            });
            known
        };
        let (rows, columns) = (firsts(0), firsts(1));
        b.for_(b.c64(0), b.c64(groups as i64), b.c64(1), acc, |g, acc| {
            let (group, small) = (b.add(first, g), b.trunci(g, b.i32()));
            let mut acc = acc.to_vec();
            // The rows' codes, scales and sums.
            let rows: Vec<(u64, Vec<V>, V, V)> = rows
                .iter()
                .map(|(c, r)| {
                    let row = b.mul_c(at[*r][0], staged[0].strides[0] as i64);
                    let p = b.gep(staged[0].base, b.i8(), b.add(row, b.shl_c(small, 5)));
                    let halves = [0, 16].map(|i| b.load(b.offset_c(p, i), b.i32(), 4, 16));
                    let words = (0..8).map(|w| b.extract(halves[w / 4], w % 4)).collect();
                    let i = b.add(b.mul_c(at[*r][0], groups as i64), small);
                    (*c, words, self.staged_at(&staged[1], i), self.staged_at(&staged[2], i))
                })
                .collect();
            for (c, r) in &columns {
                let column = b.add(of.n, b.zext(at[*r][1], b.i64()));
                let inside = b.cmp(Cmp::Ult, column, of.packed.n);
                let inside = b.and(inside, b.cmp(Cmp::Ult, b.shl_c(group, 5), of.packed.k));
                let mine: Vec<usize> = (0..count).filter(|r| flat(*r, 1) == *c).collect();
                let before: Vec<V> = mine.iter().map(|r| acc[*r]).collect();
                let types = vec![b.f32(); mine.len()];
                let after = b.if_(
                    inside,
                    &types,
                    || {
                        let weights = Group::of(b, &of.packed, group, column);
                        let (words, s) = (weights.words(b), weights.scales(b));
                        let one = |(r, acc): (&usize, &V<'c>)| {
                            let row = rows.iter().find(|x| x.0 == flat(*r, 0)).unwrap_or(&rows[0]);
                            let dot = |range: std::ops::Range<usize>| {
                                range.fold(b.c32(0), |sum, w| {
                                    b.intrinsic("llvm.nvvm.idp4a.s.s", &[words[w], row.1[w], sum], b.i32())
                                })
                            };
                            let product = match s.sub {
                                Some([x, y]) => b.add(b.mul(x, dot(0..4)), b.mul(y, dot(4..8))),
                                None => dot(0..8),
                            };
                            let scale = b.mulf(s.scale, row.2);
                            let mut acc = b.fma(b.sitofp(product, b.f32()), scale, *acc);
                            if let Some(min) = s.min {
                                acc = b.fma(b.sitofp(row.3, b.f32()), b.mulf(min, row.2), acc);
                            }
                            acc
                        };
                        mine.iter().zip(&before).map(one).collect()
                    },
                    || before.clone(),
                );
                mine.iter().zip(after).for_each(|(r, v)| acc[*r] = v);
            }
            acc
        })
    }
}
