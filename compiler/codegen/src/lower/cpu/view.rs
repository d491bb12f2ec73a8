//! Views: addresses, bounds, and loads and stores that touch nothing outside.
//!
//! An access to a tile's worth of a view is compiled twice: without any check, for when the whole tile lies inside and the
//! innermost stride is 1 ([`Cx::versioned`] tests that once a nest), and with checks, which is this file's longer half:
//! a vector that lies inside as a whole is still one access, at the edge it is a masked one or a short loop.

use super::{
    Error,
    at::At,
    build::{Build, Cmp, V},
    cx::{Cx, Home, ViewVal},
    machine::{self, carrier, from_memory, memory_type, to_memory},
    stream,
};
use tegula_ir::{Key, Op};

impl<'a, 'c> Cx<'a, 'c> {
    /// `narrow`: a view of a part of an axis.
    pub fn narrow(&mut self, op: &'a Op) {
        let (b, mut view) = (self.b, self.view(op.operands[0]));
        let axis = op.attrs.int(Key::Axis).unwrap_or(0) as usize;
        let (start, len) = (self.scalar(op.operands[1]), self.scalar(op.operands[2]));
        let (zero, extent) = (b.c64(0), view.extents[axis]);
        let start = b.mins(b.maxs(start, zero), extent);
        let rest = b.sub(extent, start);
        view.extents[axis] = b.mins(b.maxs(len, zero), rest);
        let shift = b.mul(start, view.strides[axis]);
        view.base = b.gep(view.base, memory_type(b, view.elem), shift);
        self.set_home(op.results[0], Home::View(view));
    }

    /// Position operands of a load or store.
    pub fn position_of(&mut self, op: &Op, rank: usize) -> Vec<V<'c>> {
        (0..rank).map(|d| self.scalar(op.operands[1 + d])).collect()
    }

    /// Whether all of a load's or store's tile lies inside its view, in a form that the short code serves: i1.
    pub fn is_inside(&mut self, op: &'a Op) -> V<'c> {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let tile = op.results.first().copied().unwrap_or(op.operands[op.operands.len() - 1]);
        let shape = &self.tile(tile).shape;
        let position = self.position_of(op, view.extents.len());
        let mut all = b.cbool(true);
        for (d, n) in shape.iter().enumerate() {
            let (p, zero) = (position[d], b.c64(0));
            // p ≥ 0 and p ≤ extent − n, as one unsigned comparison would do if extent ≥ n were known.
            let low = b.cmp(Cmp::Sge, p, zero);
            let high = b.cmp(Cmp::Sle, p, b.add_c(view.extents[d], -(*n as i64)));
            all = b.and(all, b.and(low, high));
        }
        if !view.unit
            && let Some(stride) = view.strides.last()
        {
            all = b.and(all, b.cmp(Cmp::Eq, *stride, b.c64(1)));
        }
        all
    }

    /// Indices of an access at a place: one an axis, of the first lane.
    fn indices_at(&mut self, op: &Op, rank: usize, at: &At<'c>) -> Vec<V<'c>> {
        let b = self.b;
        let position = self.position_of(op, rank);
        position
            .iter()
            .zip(&at.coords)
            .map(|(p, c)| if c.var.is_none() && c.plus == 0 { *p } else { b.add(*p, c.value(b)) })
            .collect()
    }

    /// Elements of a view load at a place.
    pub fn view_load(&mut self, op: &'a Op, at: &At<'c>) -> V<'c> {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let index = self.indices_at(op, view.extents.len(), at);
        let p = view.address(b, &index);
        let lanes = at.lanes();
        let last = view.extents.len().wrapping_sub(1);
        let contiguous = at.lane.is_none_or(|(axis, _)| axis == last);
        let fast = self.is_unchecked(op);
        if fast && (contiguous || lanes == 0) {
            if let (Some(distance), true) = (self.ahead(op), lanes > 0) {
                b.prefetch(b.offset(p, distance), 2);
            }
            return machine::load(b, p, view.elem, lanes);
        }
        let pad = b.constant_bits(carrier(b, view.elem), Self::pad_bits(op), 0);
        let Some((axis, _)) = at.lane else {
            // No branch: thousands of them in a row, an unrolled loop's, cost MLIR and LLVM time and memory with their
            // square. Outside, something that can be read is read, and not used.
            let ok = view.contains(b, &index, None);
            let x = machine::load(b, b.select(ok, p, self.ctx), view.elem, 0);
            return b.select(ok, x, pad);
        };
        if fast {
            // Lanes along another axis than the innermost.
            let lanes: Vec<V> = (0..lanes).map(|i| machine::load(b, view.step(b, p, axis, i), view.elem, 0)).collect();
            return b.gather_lanes(&lanes);
        }
        let rows = view.contains(b, &index, Some(axis));
        let (first, extent) = (index[axis], view.extents[axis]);
        let ty = b.vec(carrier(b, view.elem), lanes);
        if contiguous && view.unit {
            let whole = b.and(rows, whole_inside(b, first, extent, lanes));
            return b.if_(
                whole,
                &[ty],
                || vec![machine::load(b, p, view.elem, lanes)],
                || {
                    let ok = b.and(b.splat(rows, lanes), inside_lanes(b, first, extent, lanes));
                    if self.target.has_masked(view.elem.bytes()) {
                        let rest = to_memory(b, b.splat(pad, lanes), view.elem);
                        return vec![from_memory(b, b.masked_load(p, ok, rest, view.elem.bytes()), view.elem)];
                    }
                    vec![self.load_lanes(&view, p, axis, (first, extent, rows), pad, lanes)]
                },
            )[0];
        }
        self.load_lanes(&view, p, axis, (first, extent, rows), pad, lanes)
    }

    /// Lanes one by one through a little stack memory.
    fn load_lanes(
        &self,
        view: &ViewVal<'c>,
        p: V<'c>,
        axis: usize,
        range: (V<'c>, V<'c>, V<'c>),
        pad: V<'c>,
        lanes: usize,
    ) -> V<'c> {
        let (b, e) = (self.b, view.elem);
        let slot = b.stack(64.max(lanes * e.bytes()), 64);
        machine::store(b, b.splat(pad, lanes), slot, e);
        let (lo, hi) = lane_range(b, range.0, range.1, range.2, lanes);
        let memory = memory_type(b, e);
        b.for_(lo, hi, b.c64(1), &[], |i, _| {
            let from = b.gep(p, memory, b.mul(i, view.strides[axis]));
            b.store(to_memory(b, machine::load(b, from, e, 0), e), b.gep(slot, memory, i), e.bytes());
            vec![]
        });
        machine::load(b, slot, e, lanes)
    }

    /// `store`.
    pub fn view_store(&mut self, op: &'a Op) -> Result<(), Error> {
        let tile = op.operands[op.operands.len() - 1];
        let shape = self.tile(tile).shape.clone();
        self.nest(&shape, &[tile], Some(op), &mut |cx, at| {
            let x = cx.eval(tile, at);
            cx.store_at(op, at, x);
            Ok(())
        })
    }

    fn store_at(&mut self, op: &'a Op, at: &At<'c>, x: V<'c>) {
        let (b, view) = (self.b, self.view(op.operands[0]));
        let e = view.elem;
        let index = self.indices_at(op, view.extents.len(), at);
        let p = view.address(b, &index);
        let last = view.extents.len().wrapping_sub(1);
        let contiguous = at.lane.is_none_or(|(axis, _)| axis == last);
        if self.is_unchecked(op) && contiguous {
            let bytes = at.lanes() * e.bytes();
            if self.streaming && bytes.is_power_of_two() {
                return stream::store(b, to_memory(b, x, e), p, bytes);
            }
            if let (Some(distance), true) = (self.ahead(op), at.lane.is_some()) {
                b.prefetch_to_write(b.offset(p, distance), 2);
            }
            return machine::store(b, x, p, e);
        }
        let Some((axis, lanes)) = at.lane else {
            let ok = view.contains(b, &index, None);
            return b.when(ok, || machine::store(b, x, p, e));
        };
        if self.is_unchecked(op) {
            // Lanes along another axis than the innermost.
            for i in 0..lanes {
                machine::store(b, b.extract(x, i), view.step(b, p, axis, i), e);
            }
            return;
        }
        let rows = view.contains(b, &index, Some(axis));
        let (first, extent) = (index[axis], view.extents[axis]);
        let one_by_one = || {
            let slot = b.stack(64.max(lanes * e.bytes()), 64);
            machine::store(b, x, slot, e);
            let (lo, hi) = lane_range(b, first, extent, rows, lanes);
            let memory = memory_type(b, e);
            b.for_(lo, hi, b.c64(1), &[], |i, _| {
                let y = b.load(b.gep(slot, memory, i), memory, 0, e.bytes());
                b.store(y, b.gep(p, memory, b.mul(i, view.strides[axis])), e.bytes());
                vec![]
            });
        };
        if !(contiguous && view.unit) {
            return one_by_one();
        }
        let whole = b.and(rows, whole_inside(b, first, extent, lanes));
        b.if_(
            whole,
            &[],
            || {
                machine::store(b, x, p, e);
                vec![]
            },
            || {
                if self.target.has_masked(e.bytes()) {
                    let ok = b.and(b.splat(rows, lanes), inside_lanes(b, first, extent, lanes));
                    b.masked_store(to_memory(b, x, e), p, ok, e.bytes());
                } else {
                    one_by_one();
                }
                vec![]
            },
        );
    }
}

impl<'c> ViewVal<'c> {
    /// Address of the element at these indices.
    pub fn address(&self, b: &Build<'c>, index: &[V<'c>]) -> V<'c> {
        let one = b.c64(1);
        let offset = index.iter().zip(&self.strides).map(|(i, s)| if *s == one { *i } else { b.mul(*i, *s) });
        let offset = offset.reduce(|x, y| b.add(x, y));
        offset.map_or(self.base, |o| b.gep(self.base, memory_type(b, self.elem), o))
    }
    /// Address `i` elements along an axis from `p`.
    fn step(&self, b: &Build<'c>, p: V<'c>, axis: usize, i: usize) -> V<'c> {
        if i == 0 { p } else { b.gep(p, memory_type(b, self.elem), b.mul_c(self.strides[axis], i as i64)) }
    }
    /// Whether the indices along all axes, but for `except`, lie inside: i1.
    pub fn contains(&self, b: &Build<'c>, index: &[V<'c>], except: Option<usize>) -> V<'c> {
        // A negative index is a huge unsigned one.
        let axes = (0..index.len()).filter(|d| Some(*d) != except);
        axes.map(|d| b.cmp(Cmp::Ult, index[d], self.extents[d]))
            .reduce(|x, y| b.and(x, y))
            .unwrap_or_else(|| b.cbool(true))
    }
}

/// Whether `lanes` indices from `first` all lie in 0..extent.
fn whole_inside<'c>(b: &Build<'c>, first: V<'c>, extent: V<'c>, lanes: usize) -> V<'c> {
    let low = b.cmp(Cmp::Sge, first, b.c64(0));
    b.and(low, b.cmp(Cmp::Sle, first, b.add_c(extent, -(lanes as i64))))
}

/// For each lane, whether first + lane lies in 0..extent.
fn inside_lanes<'c>(b: &Build<'c>, first: V<'c>, extent: V<'c>, lanes: usize) -> V<'c> {
    let index = b.add(b.splat(first, lanes), b.iota(b.i64(), lanes));
    b.cmp(Cmp::Ult, index, b.splat(extent, lanes))
}

/// The lanes that lie in 0..extent as a range; empty where `rows` does not hold.
fn lane_range<'c>(b: &Build<'c>, first: V<'c>, extent: V<'c>, rows: V<'c>, lanes: usize) -> (V<'c>, V<'c>) {
    let (zero, n) = (b.c64(0), b.c64(lanes as i64));
    let lo = b.maxs(b.sub(zero, b.maxs(first, b.c64(-(lanes as i64)))), zero);
    // first may be anything: clamp it before subtracting.
    let below = b.cmp(Cmp::Slt, first, extent);
    let hi = b.select(b.and(rows, below), b.mins(b.sub(extent, b.maxs(first, b.c64(-(lanes as i64)))), n), zero);
    (lo, hi)
}
