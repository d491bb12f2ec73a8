//! Views: loads and stores that touch nothing outside.
//!
//! Of the axes that the facts do not prove inside, one test a program decides whether the whole tile is. If so, accesses
//! are as wide as layout and alignment allow, without checks; else each element has a predicate of its own.

use super::{
    super::{
        build::{Cmp, V},
        machine::{self, carrier, from_memory, memory_type, to_memory},
    },
    Error, asm,
    cx::{Cx, Home, Piece, Regs, ViewVal, pieces_of},
};
use melior::ir::ValueLike;
use std::collections::HashMap;
use tegula_ir::{
    Key, Op, Value,
    linear::{TileLayout, blocked::Blocking},
};

/// An access to a tile's worth of a view.
pub struct Access<'c> {
    view: ViewVal<'c>,
    position: Vec<V<'c>>,
    /// Axes along which the position is at least 0 for certain.
    after_start: Vec<bool>,
    shape: Vec<usize>,
    pub pieces: Vec<Piece>,
    /// Axes along which elements may be outside.
    open: Vec<usize>,
    /// Elements of one unchecked access.
    width: usize,
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `dim`.
    pub fn dim(&mut self, op: &'a Op) -> Result<(), Error> {
        let axis = op.attrs.int(Key::Axis).unwrap_or(0) as usize;
        let x = self.b.trunci(self.view(op.operands[0]).extents[axis], self.b.i32());
        self.set_regs(op.results[0], vec![vec![x]])
    }

    /// `narrow`: a view of a part of an axis.
    pub fn narrow(&mut self, op: &'a Op) -> Result<(), Error> {
        let (b, mut view) = (self.b, self.view(op.operands[0]));
        let axis = op.attrs.int(Key::Axis).unwrap_or(0) as usize;
        let (start, len) = (self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        let (zero, extent) = (b.c64(0), view.extents[axis]);
        let start = b.mins(b.maxs(start, zero), extent);
        let rest = b.sub(extent, start);
        view.extents[axis] = b.mins(b.maxs(len, zero), rest);
        view.base = b.gep(view.base, memory_type(b, view.elem), b.mul(start, view.strides[axis]));
        self.set_home(op.results[0], Home::View(view));
        Ok(())
    }

    /// The access of an op to all of `tile`, where that is.
    fn access(&mut self, op: &'a Op, tile: Value) -> Access<'c> {
        let (shape, pieces) = (self.tile(tile).shape.clone(), self.pieces(tile));
        self.access_to(op, shape, pieces, usize::MAX)
    }

    /// The access of a load to a part of its tile, of that shape, from index `first` (i64) of an axis on; rows of memory
    /// side by side in lanes. `row` divides `first` where the axis is the last.
    pub fn access_part(&mut self, op: &'a Op, axis: usize, first: V<'c>, row: usize, shape: &[usize]) -> Access<'c> {
        // 0 has no lowest bit: nothing is lost then.
        let aligned = if row == 0 { usize::MAX } else { 1 << row.trailing_zeros() };
        let e = self.view(op.operands[0]).elem;
        let side_by_side = (self.facts.alignment(op) / e.bytes()).clamp(1, (16 / e.bytes()).max(1)).min(aligned);
        let blocking = Blocking::row_major(shape.len(), side_by_side, self.k.warps().trailing_zeros());
        let pieces = pieces_of(shape, &TileLayout::blocked(shape, &blocking));
        let mut access = self.access_to(op, shape.to_vec(), pieces, aligned);
        // Positions far outside are as good as just outside, and the sum is a number then: `first` is below 2³¹.
        let b = self.b;
        let position = b.mins(access.position[axis], access.view.extents[axis]);
        access.position[axis] = b.add(b.maxs(position, b.c64(-(1 << 32))), first);
        access
    }

    fn access_to(&mut self, op: &'a Op, shape: Vec<usize>, pieces: Vec<Piece>, aligned: usize) -> Access<'c> {
        let view = self.view(op.operands[0]);
        let rank = view.extents.len();
        let position = (0..rank).map(|d| self.scalar(op.operands[1 + d])).collect();
        let after = |d: usize| self.facts.range(op.operands[1 + d]).is_some_and(|r| r.lo >= 0);
        let after_start = (0..rank).map(after).collect();
        let open = (0..rank).filter(|d| !self.facts.in_bounds_along(op, *d)).collect();
        let aligned = (self.facts.alignment(op) / view.elem.bytes()).min(aligned);
        let together = pieces.iter().map(|p| p.layout.contiguous()).min().unwrap_or(1);
        // Registers of one row only: neighbours in the flat index are along the last axis.
        let row = pieces.iter().filter_map(|p| p.extents().last().copied()).min().unwrap_or(1);
        let most = (16 / view.elem.bytes()).max(1);
        let width = if view.unit && rank > 0 { aligned.max(1).min(together).min(row).min(most) } else { 1 };
        Access { view, position, after_start, shape, pieces, open, width }
    }

    /// Whether the whole tile is inside along the open axes: i1; `None` if that is known.
    fn inside(&self, a: &Access<'c>) -> Option<V<'c>> {
        let b = self.b;
        let one = |d: &usize| {
            let (p, n) = (a.position[*d], a.shape[*d] as i64);
            let low = b.cmp(Cmp::Sge, p, b.c64(0));
            b.and(low, b.cmp(Cmp::Sle, p, b.add_c(a.view.extents[*d], -n)))
        };
        a.open.iter().map(one).reduce(|x, y| b.and(x, y))
    }

    /// Addresses of the registers of a piece. Offsets of elements inside are below 2^31 where the launch says so: 32 bits
    /// are enough, whatever becomes of those outside, which are not accessed.
    fn addresses(&mut self, a: &Access<'c>, piece: &Piece) -> Vec<V<'c>> {
        let b = self.b;
        let (rank, memory) = (a.view.extents.len(), memory_type(b, a.view.elem));
        let ty = if a.view.small { b.i32() } else { b.i64() };
        let strides: Vec<V> = a.view.strides.iter().map(|s| b.trunci(*s, ty)).collect();
        let position: Vec<V> = a.position.iter().map(|p| b.trunci(*p, ty)).collect();
        let wide = |x: V<'c>| if a.view.small { x } else { b.zext(x, ty) };
        // What all threads have in common goes first: one number for the program.
        let common = (0..rank).map(|d| b.mul(position[d], strides[d])).reduce(|x, y| b.add(x, y));
        let mut starts: HashMap<Vec<usize>, V<'c>> = HashMap::new();
        let mut rows: HashMap<(usize, Vec<i64>), V<'c>> = HashMap::new();
        (0..piece.layout.regs())
            .map(|r| {
                let at: Vec<(V, i64)> = (0..rank).map(|d| self.coordinate(piece, d, r)).collect();
                let key: Vec<usize> = at.iter().map(|c| identity(c.0)).collect();
                let start = *starts.entry(key).or_insert_with(|| {
                    let own = (0..rank).map(|d| b.mul(wide(at[d].0), strides[d])).reduce(|x, y| b.add(x, y));
                    common.zip(own).map_or_else(|| b.c(ty, 0), |(x, y)| b.add(x, y))
                });
                let mut steps: Vec<i64> = at.iter().map(|c| c.1).collect();
                let last = if a.view.unit { steps.pop().unwrap_or(0) } else { 0 };
                let row = *rows.entry((identity(start), steps.clone())).or_insert_with(|| {
                    let offset = steps.iter().zip(&strides).filter(|(c, _)| **c != 0);
                    let offset = offset.map(|(c, s)| b.mul_c(*s, *c)).reduce(|x, y| b.add(x, y));
                    b.gep(a.view.base, memory, offset.map_or(start, |o| b.add(start, o)))
                });
                if last == 0 { row } else { b.gep(row, memory, b.c64(last)) }
            })
            .collect()
    }

    /// Whether each register of a piece is inside: i1.
    fn predicates(&mut self, a: &Access<'c>, piece: &Piece) -> Vec<V<'c>> {
        let b = self.b;
        // Along an open axis those of `from` to `from + count` of the tile are inside: i32, the same for all threads.
        let inside: Vec<(Option<V>, V)> = a
            .open
            .iter()
            .map(|d| {
                let (n, extent) = (b.c64(a.shape[*d] as i64), a.view.extents[*d]);
                if a.after_start[*d] {
                    let count = b.mins(b.sub(extent, b.mins(a.position[*d], extent)), n);
                    return (None, b.trunci(count, b.i32()));
                }
                let position = b.maxs(b.mins(a.position[*d], extent), b.sub(b.c64(0), n));
                let from = b.maxs(b.sub(b.c64(0), position), b.c64(0));
                let count = b.sub(b.mins(b.sub(extent, position), n), from);
                (Some(b.trunci(from, b.i32())), b.trunci(count, b.i32()))
            })
            .collect();
        let mut known: HashMap<(usize, usize, i64), V<'c>> = HashMap::new();
        (0..piece.layout.regs())
            .map(|r| {
                let mut all = None;
                for (d, (from, count)) in a.open.iter().zip(&inside) {
                    let (v, c) = self.coordinate(piece, *d, r);
                    let ok = *known.entry((*d, identity(v), c)).or_insert_with(|| {
                        let i = b.add_c(v, c);
                        // An index before the first is a huge unsigned one.
                        b.cmp(Cmp::Ult, from.map_or(i, |f| b.sub(i, f)), *count)
                    });
                    all = Some(all.map_or(ok, |x| b.and(x, ok)));
                }
                all.unwrap_or_else(|| b.cbool(true))
            })
            .collect()
    }

    /// `load`.
    pub fn load(&mut self, op: &'a Op) -> Result<(), Error> {
        let v = op.results[0];
        let a = self.access(op, v);
        let layout = self.layout(v);
        self.before_read(&a.view, Some((&a.position, &layout)));
        let regs = self.load_access(&a, Self::pad_bits(op));
        self.set_regs(v, regs)
    }

    /// What is there, `pad` where that is outside.
    pub fn load_access(&mut self, a: &Access<'c>, pad: u64) -> Regs<'c> {
        let b = self.b;
        let counts: Vec<usize> = a.pieces.iter().map(|p| p.layout.regs()).collect();
        let flat = match self.inside(a) {
            None => self.load_whole(a),
            Some(inside) => {
                let types = vec![carrier(b, a.view.elem); counts.iter().sum()];
                let cell = std::cell::RefCell::new(self);
                b.if_(inside, &types, || cell.borrow_mut().load_whole(a), || cell.borrow_mut().load_each(a, pad))
            }
        };
        split(&flat, &counts)
    }

    fn load_whole(&mut self, a: &Access<'c>) -> Vec<V<'c>> {
        let (b, e) = (self.b, a.view.elem);
        let mut out = vec![];
        for piece in &a.pieces {
            let p = self.addresses(a, piece);
            for p in p.chunks(a.width) {
                if a.width == 1 {
                    out.push(machine::load(b, p[0], e, 0));
                    continue;
                }
                let x = b.load(p[0], memory_type(b, e), a.width, a.width * e.bytes());
                out.extend((0..a.width).map(|i| from_memory(b, b.extract(x, i), e)));
            }
        }
        out
    }

    fn load_each(&mut self, a: &Access<'c>, pad: u64) -> Vec<V<'c>> {
        let (b, e) = (self.b, a.view.elem);
        let bits = e.bytes() as u32 * 8;
        let pad = b.constant_bits(b.int(bits), pad, 0);
        let mut out = vec![];
        for piece in &a.pieces {
            let (p, ok) = (self.addresses(a, piece), self.predicates(a, piece));
            for (p, ok) in p.into_iter().zip(ok) {
                let raw = asm::load_if(b, p, ok, pad, bits);
                out.push(from_memory(b, b.bitcast(raw, memory_type(b, e)), e));
            }
        }
        out
    }

    /// `store`.
    pub fn store(&mut self, op: &'a Op) -> Result<(), Error> {
        let b = self.b;
        let tile = op.operands[op.operands.len() - 1];
        let a = self.access(op, tile);
        let layout = self.layout(tile);
        self.before_write(&a.view, Some((&a.position, &layout)));
        let regs = self.regs(tile);
        match self.inside(&a) {
            None => self.store_whole(&a, &regs),
            Some(inside) => {
                let cell = std::cell::RefCell::new(self);
                b.if_(
                    inside,
                    &[],
                    || {
                        cell.borrow_mut().store_whole(&a, &regs);
                        vec![]
                    },
                    || {
                        cell.borrow_mut().store_each(&a, &regs);
                        vec![]
                    },
                );
            }
        }
        Ok(())
    }

    fn store_whole(&mut self, a: &Access<'c>, regs: &Regs<'c>) {
        let (b, e) = (self.b, a.view.elem);
        for (piece, regs) in a.pieces.iter().zip(regs) {
            self.by_owners(&piece.layout, |cx| {
                let p = cx.addresses(a, piece);
                for (p, x) in p.chunks(a.width).zip(regs.chunks(a.width)) {
                    let x: Vec<V> = x.iter().map(|x| to_memory(b, *x, e)).collect();
                    let x = if a.width == 1 { x[0] } else { b.gather_lanes(&x) };
                    b.store(x, p[0], a.width * e.bytes());
                }
            });
        }
    }

    fn store_each(&mut self, a: &Access<'c>, regs: &Regs<'c>) {
        let (b, e) = (self.b, a.view.elem);
        for (piece, regs) in a.pieces.iter().zip(regs) {
            let owner = self.is_owner(&piece.layout);
            let (p, ok) = (self.addresses(a, piece), self.predicates(a, piece));
            for ((p, ok), x) in p.into_iter().zip(ok).zip(regs) {
                let ok = owner.map_or(ok, |o| b.and(o, ok));
                let raw = b.bitcast(to_memory(b, *x, e), b.int(e.bytes() as u32 * 8));
                asm::store_if(b, raw, p, ok);
            }
        }
    }
}

/// What tells values apart: for tables.
fn identity(v: V<'_>) -> usize {
    v.to_raw().ptr as usize
}

/// A flat list of registers by pieces.
pub fn split<'c>(flat: &[V<'c>], counts: &[usize]) -> Regs<'c> {
    let mut rest = flat;
    counts
        .iter()
        .map(|n| {
            let (own, after) = rest.split_at(*n);
            rest = after;
            own.to_vec()
        })
        .collect()
}
