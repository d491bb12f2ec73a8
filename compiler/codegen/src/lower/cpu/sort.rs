//! `sort` and `topk`: a bottom-up merge sort of each row, stable, in scratch memory.

use super::{
    super::arith::before,
    Error,
    at::{At, Coord},
    build::{Build, Cmp, V},
    cx::Cx,
    machine::{self, memory_type},
};
use tegula_ir::{Elem, Key, Op, OpKind, TileType};

/// A row being sorted: values, and with them their indices, in two places each.
struct Rows<'c> {
    values: [V<'c>; 2],
    indices: Option<[V<'c>; 2]>,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `sort`, `topk`.
    pub fn sort(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let (source, ty) = (op.operands[0], self.tile(op.operands[0]).clone());
        let (axis, n) = (ty.rank() - 1, ty.shape[ty.rank() - 1]);
        let with_indices = op.kind == OpKind::TopK;
        let descending = with_indices || op.attrs.has(Key::Descending);
        let results: Vec<_> = op.results.iter().map(|v| self.buffer(self.tile(*v))).collect();
        let row = TileType::new(ty.elem, [n]);
        let index_row = TileType::new(Elem::I32, [n]);
        let scratch: Vec<_> = [&row, &row]
            .into_iter()
            .chain([&index_row; 2].into_iter().filter(|_| with_indices))
            .map(|t| self.buffer(t))
            .collect();
        let rows = Rows {
            values: [scratch[0].ptr, scratch[1].ptr],
            indices: with_indices.then(|| [scratch[2].ptr, scratch[3].ptr]),
        };
        let mut outer = ty.shape.clone();
        outer[axis] = 1;
        self.versioned(&[source], None, &[], &mut |cx| {
            cx.loops(&outer, None, 1, &mut At::origin(ty.rank()), 0, &mut |cx, at| {
                let lanes = cx.target.lanes;
                let mut inner = vec![1; ty.rank()];
                inner[axis] = n;
                let mut place = at.clone();
                cx.loops(&inner[axis..], Some(0), lanes, &mut At::origin(1), 0, &mut |cx, c| {
                    place.coords[axis] = c.coords[0];
                    place.lane = c.lane.map(|(_, n)| (axis, n));
                    let x = cx.eval(source, &place);
                    cx.write(&scratch[0], c, x);
                    if with_indices {
                        let first = b.trunci(c.coords[0].value(b), b.i32());
                        let lanes = c.lanes();
                        let i = if lanes == 0 { first } else { b.add(b.splat(first, lanes), b.iota(b.i32(), lanes)) };
                        cx.write(&scratch[2], c, i);
                    }
                    Ok(())
                })?;
                let (values, indices) = merge_sort(b, &rows, n, ty.elem, descending);
                let keep = results[0].ty.shape[axis];
                let to = at.with(axis, Coord::constant(0));
                b.copy(cx.address(&results[0], &to), values, keep * ty.elem.bytes());
                if let (Some(from), Some(buf)) = (indices, results.get(1)) {
                    b.copy(cx.address(buf, &to), from, keep * 4);
                }
                Ok(())
            })?;
            Ok(vec![])
        })?;
        scratch.iter().for_each(|s| self.release(s));
        for (v, buf) in op.results.iter().zip(results) {
            self.finish_buffer(*v, buf);
        }
        Ok(())
    }
}

/// Sorts the row in the first place; gives where it is then.
fn merge_sort<'c>(b: &Build<'c>, rows: &Rows<'c>, n: usize, e: Elem, descending: bool) -> (V<'c>, Option<V<'c>>) {
    let total = b.c64(n as i64);
    let mut state = vec![b.c64(1), rows.values[0], rows.values[1]];
    if let Some(i) = rows.indices {
        state.extend(i);
    }
    let memory = memory_type(b, e);
    let end = b.while_(
        &state,
        |s| b.cmp(Cmp::Slt, s[0], total),
        |s| {
            let width = s[0];
            b.for_(b.c64(0), total, b.add(width, width), &[], |lo, _| {
                let mid = b.mins(b.add(lo, width), total);
                let hi = b.mins(b.add(mid, width), total);
                b.for_(lo, hi, b.c64(1), &[lo, mid], |to, at| {
                    let (i, j) = (at[0], at[1]);
                    let last = b.c64(n as i64 - 1);
                    let load = |i: V<'c>| machine::load(b, b.gep(s[1], memory, b.mins(i, last)), e, 0);
                    let (x, y) = (load(i), load(j));
                    let right_left = b.cmp(Cmp::Slt, j, hi);
                    let left_done = b.cmp(Cmp::Sge, i, mid);
                    let right = b.and(right_left, b.or(left_done, before(b, e, descending, y, x)));
                    machine::store(b, b.select(right, y, x), b.gep(s[2], memory, to), e);
                    if s.len() > 3 {
                        let from = b.select(right, j, i);
                        let index = b.load(b.gep(s[3], b.i32(), from), b.i32(), 0, 4);
                        b.store(index, b.gep(s[4], b.i32(), to), 4);
                    }
                    let one = b.zext(right, b.i64());
                    vec![b.add(i, b.sub(b.c64(1), one)), b.add(j, one)]
                });
                vec![]
            });
            let mut next = vec![b.add(width, width), s[2], s[1]];
            if s.len() > 3 {
                next.extend([s[4], s[3]]);
            }
            next
        },
    );
    (end[1], end.get(3).copied())
}
