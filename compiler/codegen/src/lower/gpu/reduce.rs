//! Reductions along an axis: within the thread, then between lanes, then between warps.
//!
//! **Order.** It is part of a kernel's numbers, so it depends on the axis and its extent alone, not on where the elements
//! are. An axis is cut into power-of-two segments, each folded as a binary tree over the bits of the index, the segments
//! then from left to right. Along the last axis the tree goes over bits 0 and 1 first (neighbours in a thread), then from
//! the highest bit down to bit 7 (further registers, warps), then bits 6 to 2 (lanes): the order that costs least in the
//! layouts that rows have. Along other axes it goes from the highest bit down. A combiner given as a region may not
//! commute: its tree goes from bit 0 upwards, so that both operands always are neighbouring runs in order.

use super::{
    super::{
        build::V,
        cpu::reduce::{Combine, axis_of, kind_of},
        machine::carrier,
    },
    Error,
    cx::{Cx, Home, Piece, Regs},
    warp::Exchange,
};
use std::collections::BTreeMap;
use tegula_ir::{
    Elem, Op, Region, Value,
    linear::{Hardware, Linear},
};

/// A state: one register or more.
pub type State<'c> = Vec<V<'c>>;

/// What combines the state of some elements with that of those after them.
pub type Merge<'m, 'a, 'c> = dyn FnMut(&mut Cx<'a, 'c>, &[V<'c>], &[V<'c>]) -> State<'c> + 'm;

/// The order of the index bits of a segment of 2^`width` elements.
fn order(width: u32, last: bool, ordered: bool) -> Vec<u32> {
    if ordered {
        return (0..width).collect();
    }
    if !last {
        return (0..width).rev().collect();
    }
    let near = 0..width.min(2);
    let far = (7..width).rev();
    let lanes = (2..width.min(7)).rev();
    near.chain(far).chain(lanes).collect()
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `reduce`.
    pub fn reduce(&mut self, op: &'a Op) -> Result<(), Error> {
        let (source, result, axis) = (op.operands[0], op.results[0], axis_of(op));
        let (from, to) = (self.elem(source), self.elem(result));
        let b = self.b;
        let combine = Combine::new(b, kind_of(op), from, to).careful();
        let regs = self.regs(source);
        let mut states: Vec<Vec<State>> = vec![];
        for (piece, regs) in self.pieces(source).iter().zip(&regs) {
            let mut own = vec![];
            for (r, x) in regs.iter().enumerate() {
                let index = self.index(piece, axis, r);
                own.push(combine.lift(*x, index));
            }
            states.push(own);
        }
        let folded = self.fold(op, source, axis, states, false, &mut |_, x, y| combine.merge(x, y))?;
        let finished = folded.iter().map(|p| p.iter().map(|s| combine.finish(s)).collect()).collect();
        self.set_regs(result, finished)
    }

    /// `reduce_with`.
    pub fn reduce_with(&mut self, op: &'a Op) -> Result<(), Error> {
        let axis = axis_of(op);
        let all: Vec<Regs> = op.operands.iter().map(|v| self.regs(*v)).collect();
        let states = (0..all[0].len())
            .map(|p| (0..all[0][p].len()).map(|r| all.iter().map(|t| t[p][r]).collect()).collect())
            .collect();
        let body = &op.regions[0];
        let folded = self.fold(op, op.operands[0], axis, states, true, &mut |cx, x, y| {
            let args: Vec<V> = x.iter().chain(y).copied().collect();
            cx.inline(body, &args)
        })?;
        for (i, v) in op.results.iter().enumerate() {
            let regs = folded.iter().map(|p| p.iter().map(|s| s[i]).collect()).collect();
            self.set_regs(*v, regs)?;
        }
        Ok(())
    }

    /// The values that a combiner gives for scalars.
    pub fn inline(&mut self, r: &'a Region, args: &[V<'c>]) -> State<'c> {
        for (v, x) in r.args.iter().zip(args) {
            self.set_home(*v, Home::Tile(vec![vec![*x]]));
        }
        self.in_combiner = true;
        let done = r.ops.iter().try_for_each(|op| self.op(op));
        self.in_combiner = false;
        if let Err(e) = done {
            self.fault.get_or_insert(e);
            // Values of the right types, for code that is thrown away.
            return args[args.len() / 2..].to_vec();
        }
        r.yields.iter().map(|v| self.scalar(*v)).collect()
    }

    /// Folds the states of a tile's elements along an axis: those of the result, by its pieces and registers.
    fn fold(
        &mut self,
        op: &'a Op,
        source: Value,
        axis: usize,
        states: Vec<Vec<State<'c>>>,
        ordered: bool,
        merge: &mut Merge<'_, 'a, 'c>,
    ) -> Result<Vec<Vec<State<'c>>>, Error> {
        let rank = self.tile(source).rank();
        let gone: Vec<bool> = (0..rank).map(|d| d == axis).collect();
        // Pieces that differ along the axis only belong together; the first, largest one says where the result is.
        let mut groups: Vec<(Piece, Linear, Vec<State>)> = vec![];
        for (piece, states) in self.pieces(source).into_iter().zip(states) {
            let width = piece.axes.width(axis);
            let bits: Vec<u32> =
                order(width, axis + 1 == rank, ordered).iter().map(|i| i + piece.axes.low(axis)).collect();
            let folded = self.fold_piece(op, &piece.layout, states, &bits, ordered, merge);
            let layout = piece.layout.project(&piece.extents(), &gone);
            let beside = |p: &Piece| (0..rank).all(|d| d == axis || p.segments[d] == piece.segments[d]);
            let Some(i) = groups.iter().position(|g| beside(&g.0)) else {
                groups.push((piece, layout, folded));
                continue;
            };
            let target = groups[i].1.clone();
            // Where each register of the state is, register by register of it.
            let parts = folded[0].len();
            let mut moved: Vec<State> = vec![vec![]; target.regs()];
            for part in 0..parts {
                let x: Vec<V> = folded.iter().map(|s| s[part]).collect();
                let e = self.elem_of(x[0]);
                let x = self.convert_piece(op, &x, &layout, &target, e);
                moved.iter_mut().zip(x).for_each(|(s, x)| s.push(x));
            }
            let merged = groups[i].2.iter().zip(&moved).map(|(x, y)| merge(self, x, y)).collect();
            groups[i].2 = merged;
        }
        // The first pieces along the axis come in the order of the result's pieces.
        Ok(groups.into_iter().map(|g| g.2).collect())
    }

    /// An element type with the register type of a value.
    fn elem_of(&self, x: V<'c>) -> Elem {
        let b = self.b;
        let all = [Elem::F64, Elem::F32, Elem::F16, Elem::I64, Elem::I32, Elem::I16, Elem::I8, Elem::Bool];
        all.into_iter().find(|e| carrier(b, *e) == b.elem(x)).unwrap_or(Elem::I64)
    }

    /// The tree over these flat index bits of a piece: the states of the registers that are left.
    fn fold_piece(
        &mut self,
        op: &'a Op,
        layout: &Linear,
        states: Vec<State<'c>>,
        bits: &[u32],
        ordered: bool,
        merge: &mut Merge<'_, 'a, 'c>,
    ) -> Vec<State<'c>> {
        let mut live: BTreeMap<usize, State> = states.into_iter().enumerate().collect();
        let mut rest = bits;
        while let Some((bit, after)) = rest.split_first() {
            rest = after;
            match layout.bit(*bit) {
                Some(Hardware::Reg(j)) => {
                    let low: Vec<usize> = live.keys().copied().filter(|r| r >> j & 1 == 0).collect();
                    live = low
                        .into_iter()
                        .filter_map(|r| Some((r, merge(self, live.get(&r)?, live.get(&(r | 1 << j))?))))
                        .collect();
                }
                Some(Hardware::Lane(j)) => {
                    let upper = ordered.then(|| self.thread_bit(j));
                    live = live.iter().map(|(r, s)| (*r, self.across_lanes(s, j, upper, merge))).collect();
                }
                Some(Hardware::Warp(j)) => {
                    // As many bits as follow in warps go in one trip through shared memory.
                    let mut group = vec![j];
                    while let Some((next, after)) = rest.split_first()
                        && let Some(Hardware::Warp(k)) = layout.bit(*next)
                    {
                        group.push(k);
                        rest = after;
                    }
                    live = self.across_warps(op, live, &group, merge);
                }
                // Every index bit of a permutation layout is a hardware bit.
                None => {}
            }
        }
        live.into_values().collect()
    }

    fn across_lanes(
        &mut self,
        s: &State<'c>,
        lane_bit: usize,
        upper: Option<V<'c>>,
        merge: &mut Merge<'_, 'a, 'c>,
    ) -> State<'c> {
        let b = self.b;
        let other: State = s.iter().map(|x| self.shuffle(*x, Exchange::Xor(1 << lane_bit))).collect();
        let Some(upper) = upper else { return merge(self, s, &other) };
        let left: State = s.iter().zip(&other).map(|(x, y)| b.select(upper, *y, *x)).collect();
        let right: State = s.iter().zip(&other).map(|(x, y)| b.select(upper, *x, *y)).collect();
        merge(self, &left, &right)
    }

    /// Through shared memory: every warp leaves its states and reads those of its partners.
    fn across_warps(
        &mut self,
        op: &'a Op,
        live: BTreeMap<usize, State<'c>>,
        group: &[usize],
        merge: &mut Merge<'_, 'a, 'c>,
    ) -> BTreeMap<usize, State<'c>> {
        let b = self.b;
        let threads = self.threads();
        // A slab of the block's threads for each register of each state; widest first, so that all are aligned.
        let types: Vec<_> = live.values().next().into_iter().flatten().map(|x| b.elem(*x)).collect();
        let sizes: Vec<usize> =
            types.iter().map(|t| (b.bits(b.constant_bits(*t, 0, 0)) as usize).div_ceil(8)).collect();
        let states = live.len();
        let mut at = vec![0; sizes.len()];
        let mut end = 0;
        let mut by_size: Vec<usize> = (0..sizes.len()).collect();
        by_size.sort_by_key(|i| std::cmp::Reverse(sizes[*i]));
        for i in by_size {
            at[i] = end;
            end += sizes[i] * threads * states;
        }
        self.begin_shared(end, op);
        let slot = |cx: &Self, thread: V<'c>, part: usize, i: usize| {
            let p = cx.shared_at(at[part] + i * threads * sizes[part]);
            b.gep(p, b.int(sizes[part] as u32 * 8), thread)
        };
        for (i, s) in live.values().enumerate() {
            for (part, x) in s.iter().enumerate() {
                let raw = b.zext(b.bitcast(*x, b.int(b.bits(*x))), b.int(sizes[part] as u32 * 8));
                b.store(raw, slot(self, self.tid, part, i), sizes[part]);
            }
        }
        self.shared_written();
        let mask = group.iter().fold(0, |m, j| m | 32i64 << j);
        let own = b.and_c(self.tid, !mask);
        let mut out = BTreeMap::new();
        for (i, r) in live.keys().enumerate() {
            // Partner number p has group[k]'s bit where p has bit k: folding pairs in order folds the bits in order.
            let mut all: Vec<State> = (0..1usize << group.len())
                .map(|p| {
                    let bits = group.iter().enumerate().fold(0, |m, (k, j)| m | (p >> k & 1) << (5 + j));
                    let thread = b.add_c(own, bits as i64);
                    (0..types.len())
                        .map(|part| {
                            let bits = b.int(sizes[part] as u32 * 8);
                            let raw = b.load(slot(self, thread, part, i), bits, 0, sizes[part]);
                            let narrow = b.int(b.bits(b.constant_bits(types[part], 0, 0)));
                            b.bitcast(b.trunci(raw, narrow), types[part])
                        })
                        .collect()
                })
                .collect();
            while all.len() > 1 {
                all = all.chunks(2).map(|p| merge(self, &p[0], &p[1])).collect();
            }
            out.extend(all.pop().map(|s| (*r, s)));
        }
        out
    }
}
