//! `dot` by fused multiply-adds: one chain per output in ascending k, as the language says of f32.
//!
//! Both operands go to shared memory, chunk by chunk (`feed`); a thread multiplies the rows and columns of its block of the
//! result. Rows of the second operand are read by neighbours at once; the first operand is read four k at a time where
//! that is aligned.

use super::{
    super::{
        build::{Build, V},
        convert::widen,
        machine::{from_memory, memory_type},
    },
    Error,
    cx::Cx,
    stage::Staged,
    view::split,
};
use std::collections::BTreeMap;
use tegula_ir::{Elem, Op};

/// Length of a chunk of K below which none is made shorter.
const SHORTEST: usize = 32;

/// Elements from a row of a staged operand to the next.
fn row(s: &Staged<'_>) -> usize {
    s.strides[s.strides.len() - 2]
}

/// A factor as what is multiplied: f32, f64 or i32.
pub fn factor<'c>(b: &Build<'c>, x: V<'c>, e: Elem) -> V<'c> {
    match e {
        Elem::I8 => b.sext(x, b.i32()),
        Elem::U8 => b.zext(x, b.i32()),
        _ => widen(b, x, e),
    }
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `dot`.
    pub fn dot(&mut self, op: &'a Op) -> Result<(), Error> {
        self.remark_on_precision(op);
        let result = op.results[0];
        let k = self.tile(op.operands[0]).shape[1];
        // Rows of the first operand a vector longer, so that threads in one column read different banks. Rows of odd
        // lengths do so by themselves.
        let lhs = self.operand(op.operands[0], 1, 1).skewed(if k.is_multiple_of(4) { 16 } else { 0 });
        let operands = [lhs, self.operand(op.operands[1], 0, 1)];
        let init = self.convert_to(op, op.operands[2], result);
        let mut places = vec![];
        for piece in &self.pieces(result) {
            let at = |cx: &mut Self, r: usize| [cx.coordinate(piece, 0, r), cx.coordinate(piece, 1, r)];
            places.push((0..piece.layout.regs()).map(|r| at(self, r)).collect::<Vec<_>>());
        }
        let counts: Vec<usize> = places.iter().map(Vec::len).collect();
        let out = self.by_chunks(op, &operands, (k, SHORTEST), &init.concat(), &mut |cx, staged, chunk, acc| {
            let pieces = places.iter().zip(split(acc, &counts));
            pieces.flat_map(|(at, acc)| cx.products(&staged[0], &staged[1], at, &acc, chunk.len)).collect()
        });
        self.set_regs(result, split(&out, &counts))
    }

    /// The chains of the outputs at these places.
    fn products(
        &mut self,
        x: &Staged<'c>,
        y: &Staged<'c>,
        at: &[[(V<'c>, i64); 2]],
        acc: &[V<'c>],
        k: usize,
    ) -> Vec<V<'c>> {
        let b = self.b;
        // Rows and columns without repetition: a thread part (the same for all but odd layouts) and a constant.
        let number = |d: usize| {
            let mut known: Vec<(V, i64)> = vec![];
            let which: Vec<usize> = at
                .iter()
                .map(|c| {
                    known.iter().position(|k| *k == c[d]).unwrap_or_else(|| {
                        known.push(c[d]);
                        known.len() - 1
                    })
                })
                .collect();
            (known, which)
        };
        let ((rows, row_of), (columns, column_of)) = (number(0), number(1));
        let (mx, my) = (memory_type(b, x.elem), memory_type(b, y.elem));
        let row_at: Vec<V> = rows
            .iter()
            .map(|(v, c)| {
                let p = b.gep(x.base, mx, b.mul_c(*v, row(x) as i64));
                b.gep(p, mx, b.c64(c * row(x) as i64))
            })
            .collect();
        let column_at: Vec<V> = columns.iter().map(|(v, c)| b.gep(b.gep(y.base, my, *v), my, b.c64(*c))).collect();
        // Columns side by side are read at once.
        let groups = runs(&columns, (16 / y.elem.bytes()).max(1), row(y));
        let step = if k.is_multiple_of(4) && 4 * x.elem.bytes() <= 16 { 4 } else { 1 };
        b.for_(b.c64(0), b.c64(k as i64), b.c64(step as i64), acc, |i, acc| {
            let i32s = b.trunci(i, b.i32());
            let mut acc = acc.to_vec();
            let left: Vec<Vec<V>> = row_at
                .iter()
                .map(|p| {
                    let p = b.gep(*p, mx, i32s);
                    if step == 1 {
                        return vec![b.load(p, mx, 0, x.elem.bytes())];
                    }
                    let v = b.load(p, mx, step, step * x.elem.bytes());
                    (0..step).map(|j| b.extract(v, j)).collect()
                })
                .collect();
            for j in 0..step {
                let shift = b.mul_c(b.add_c(i32s, j as i64), row(y) as i64);
                let mut right: BTreeMap<usize, V> = BTreeMap::new();
                for (first, width) in &groups {
                    let p = b.gep(column_at[*first], my, shift);
                    if *width == 1 {
                        right.insert(*first, b.load(p, my, 0, y.elem.bytes()));
                        continue;
                    }
                    let v = b.load(p, my, *width, width * y.elem.bytes());
                    (0..*width).for_each(|i| {
                        right.insert(first + i, b.extract(v, i));
                    });
                }
                let wide = |v: V<'c>, e: Elem| factor(b, from_memory(b, v, e), e);
                let left: Vec<V> = left.iter().map(|l| wide(l[j], x.elem)).collect();
                let right: Vec<V> = right.values().map(|v| wide(*v, y.elem)).collect();
                for (r, c) in acc.iter_mut().enumerate() {
                    let (p, q) = (left[row_of[r]], right[column_of[r]]);
                    *c = if b.is_float(*c) { b.fma(p, q, *c) } else { b.add(b.mul(p, q), *c) };
                }
            }
            acc
        })
    }
}

/// Runs of neighbouring columns of one thread part that an aligned access of at most `most` elements reads: first and
/// length.
fn runs(columns: &[(V<'_>, i64)], most: usize, row: usize) -> Vec<(usize, usize)> {
    let mut out: Vec<(usize, usize)> = vec![];
    let mut i = 0;
    while i < columns.len() {
        let (v, c) = columns[i];
        let near = |n: usize| {
            i + n <= columns.len() && (0..n).all(|j| columns[i + j].0 == v && columns[i + j].1 == c + j as i64)
        };
        // The thread part of neighbours is a multiple of their number: it has no bits below.
        let mut n = 1;
        while n < most && near(2 * n) && c % (2 * n as i64) == 0 && row.is_multiple_of(2 * n) {
            n *= 2;
        }
        out.push((i, n));
        i += n;
    }
    out
}
