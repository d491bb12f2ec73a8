//! Elements on demand: the elements of any tile at a place, computed back to loads, buffers and constants.

use super::{
    at::{At, Coord, Key},
    build::V,
    cx::{Cx, Home},
    elementwise, machine,
    plan::reshape_is_unit,
};
use std::collections::HashMap;
use tegula_ir::{Elem, Op, OpKind, TileType, Value};

impl<'a, 'c> Cx<'a, 'c> {
    /// The elements of a tile at a place: a scalar or a vector, of the type that elements have in registers. Code goes to the outermost
    /// block where the place and the value are known, once for each place.
    pub fn eval(&mut self, v: Value, at: &At<'c>) -> V<'c> {
        let key = (v, at.key());
        let level = at.level().max(self.avail[v.0 as usize]).max(self.floor).min(self.b.here());
        if let Some(x) = self.recall(level, &key) {
            return x;
        }
        let b = self.b;
        let x = b.at_level(level, || self.compute(v, at));
        self.remember(level, key, x);
        x
    }

    fn recall(&mut self, level: usize, key: &(Value, Key)) -> Option<V<'c>> {
        // A value made further out serves as well.
        (0..=level.min(self.memo.len().saturating_sub(1)))
            .filter_map(|l| self.memo.get(l).filter(|m| l <= self.b.top() && m.0 == self.b.block_id(l)))
            .find_map(|m| m.1.get(key).copied())
    }
    fn remember(&mut self, level: usize, key: (Value, Key), x: V<'c>) {
        while self.memo.len() <= level {
            self.memo.push((0, HashMap::new()));
        }
        let id = self.b.block_id(level);
        if self.memo[level].0 != id {
            self.memo[level] = (id, HashMap::new());
        }
        self.memo[level].1.insert(key, x);
    }

    fn compute(&mut self, v: Value, at: &At<'c>) -> V<'c> {
        let b = self.b;
        match self.home(v).clone() {
            Home::Scalar(x) => return b.splat(x, at.lanes()),
            Home::Buffer(buf) => return self.read(&buf, at),
            Home::Virtual => {}
            _ => unreachable!("a verified kernel has a tile here"),
        }
        let Some(op) = self.def(v) else { unreachable!("a virtual value has its op") };
        match op.kind {
            OpKind::Load => self.view_load(op, at),
            OpKind::Gather => self.gather(op, at),
            OpKind::PackedGather => self.packed_gather(op, at),
            _ => self.pure(op, at),
        }
    }

    /// Elements of the only result of a pure op that works place by place.
    pub fn pure(&mut self, op: &'a Op, at: &At<'c>) -> V<'c> {
        let (b, ty) = (self.b, self.tile(op.results[0]));
        match op.kind {
            OpKind::Const => {
                let bits = op.attrs.scalar(tegula_ir::Key::Value).map_or(0, |s| s.bits);
                b.constant_bits(machine::carrier(b, ty.elem), bits, at.lanes())
            }
            OpKind::Iota => {
                let t = machine::carrier(b, ty.elem);
                let first = b.trunci(at.coords[0].value(b), t);
                match at.lane {
                    None => first,
                    Some((_, lanes)) => b.add(b.splat(first, lanes), b.iota(t, lanes)),
                }
            }
            OpKind::Broadcast | OpKind::Reshape | OpKind::Permute | OpKind::Slice => {
                let inner = self.source_place(op, at);
                let x = self.eval(op.operands[0], &inner);
                if inner.lane.is_none() { b.splat(x, at.lanes()) } else { x }
            }
            _ => {
                let args: Vec<V> = op.operands.iter().map(|v| self.eval(*v, at)).collect();
                let elems: Vec<Elem> = op.operands.iter().map(|v| self.elem(*v)).collect();
                elementwise::apply(self, op, &elems, ty.elem, &args)
            }
        }
    }

    /// Where a shape op takes the element at `at` from.
    fn source_place(&self, op: &Op, at: &At<'c>) -> At<'c> {
        let (from, to) = (self.tile(op.operands[0]), self.tile(op.results[0]));
        match op.kind {
            OpKind::Broadcast => {
                let mut inner = At {
                    coords: vec![],
                    lane: at.lane.filter(|(axis, _)| from.shape.get(*axis).is_some_and(|n| *n != 1)),
                };
                for (d, n) in from.shape.iter().enumerate() {
                    inner.coords.push(if *n == 1 { Coord::constant(0) } else { at.coords[d] });
                }
                inner
            }
            OpKind::Permute => {
                let perm = op.attrs.ints(tegula_ir::Key::Perm).unwrap_or_default();
                let mut inner = At::origin(perm.len());
                for (i, p) in perm.iter().enumerate() {
                    inner.coords[*p as usize] = at.coords[i];
                }
                inner.lane = at.lane.map(|(axis, n)| (perm[axis] as usize, n));
                inner
            }
            OpKind::Slice => {
                let axis = op.attrs.int(tegula_ir::Key::Axis).unwrap_or(0) as usize;
                let mut inner = at.clone();
                inner.coords[axis].plus += op.attrs.int(tegula_ir::Key::Start).unwrap_or(0);
                inner
            }
            _ => {
                debug_assert!(reshape_is_unit(self.k, op) || to.len() == 1);
                let mut inner = At::origin(from.rank());
                let axes = |t: &TileType| (0..t.rank()).filter(|d| t.shape[*d] != 1).collect::<Vec<_>>();
                for (f, t) in axes(from).into_iter().zip(axes(to)) {
                    inner.coords[f] = at.coords[t];
                    if let Some((axis, n)) = at.lane
                        && axis == t
                    {
                        inner.lane = Some((f, n));
                    }
                }
                inner
            }
        }
    }
}
