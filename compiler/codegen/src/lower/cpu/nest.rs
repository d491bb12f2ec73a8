//! Loop nests over a tile, in a version with checks of what they touch in views and one without.

use super::{
    Error,
    at::{At, Coord},
    build::{Cmp, V},
    cx::{Cx, Home},
};
use std::collections::HashSet;
use tegula_ir::{Op, OpKind, Type, Value};

/// Greatest tile, in bytes, of which the next is asked for ahead: it must fit into the L2 cache with everything else.
const LOOK_AHEAD_LIMIT: usize = 128 << 10;

impl<'a, 'c> Cx<'a, 'c> {
    /// The axis that lanes run along in a nest over `shape`: the innermost that is longer than 1.
    pub fn lane_axis(shape: &[usize]) -> Option<usize> {
        shape.iter().rposition(|n| *n > 1)
    }

    /// Runs `f` at every place of `shape` in row-major order, `target.lanes` places at a time along the lane axis. `reads`
    /// are the tiles that `f` evaluates at its places, `store` a store op whose elements it stores: where all of the
    /// memory they touch lies inside its views, a version of the nest without checks runs.
    pub fn nest(
        &mut self,
        shape: &[usize],
        reads: &[Value],
        store: Option<&'a Op>,
        f: &mut dyn FnMut(&mut Self, &At<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (shape, lane) = (shape.to_vec(), Self::lane_axis(shape));
        let lanes = self.lanes_for(reads);
        self.versioned(reads, store, &[], &mut |cx| {
            cx.loops(&shape, lane, lanes, &mut At::origin(shape.len()), 0, f)?;
            Ok(vec![])
        })?;
        Ok(())
    }

    /// Lanes of a nest that evaluates these tiles: as many as make a vector of the widest element there is below them, but
    /// not fewer than f32 would.
    fn lanes_for(&self, reads: &[Value]) -> usize {
        let widest = reads.iter().map(|v| self.widest(*v)).max().unwrap_or(4).clamp(1, 4);
        self.target.lanes * 4 / widest
    }
    /// Bytes of the widest element below a tile, through virtual values. Arithmetic on floats below f32 is done in f32.
    fn widest(&self, v: Value) -> usize {
        let of = |v: &Value| match self.k.ty(*v) {
            Type::Tile(t) if t.len() > 1 => t.elem.bytes(),
            _ => 0,
        };
        let below = self.virtual_below(v).into_iter().flat_map(|op| {
            let arithmetic = op.kind.is_elementwise() && self.elem(op.results[0]).is_float();
            let operands = op.operands.iter().filter(|_| op.kind != OpKind::Load).map(of);
            operands.chain([of(&op.results[0]), if arithmetic { 4 } else { 0 }]).collect::<Vec<_>>()
        });
        below.fold(self.tile(v).elem.bytes(), usize::max)
    }

    /// The loops of a nest from `axis` inwards.
    pub fn loops(
        &mut self,
        shape: &[usize],
        lane: Option<usize>,
        lanes: usize,
        at: &mut At<'c>,
        axis: usize,
        f: &mut dyn FnMut(&mut Self, &At<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if axis == shape.len() {
            return f(self, at);
        }
        let n = shape[axis];
        if n == 1 || lane.is_none_or(|l| l != axis) {
            return self.counted(n, 1, |cx, c| {
                at.coords[axis] = c;
                cx.loops(shape, lane, lanes, at, axis + 1, f)
            });
        }
        let whole = n / lanes * lanes;
        at.lane = Some((axis, lanes));
        self.counted(whole, lanes, |cx, c| {
            at.coords[axis] = c;
            cx.loops(shape, lane, lanes, at, axis + 1, f)
        })?;
        if whole < n {
            at.lane = (n - whole > 1).then_some((axis, n - whole));
            at.coords[axis] = Coord::constant(whole as i64);
            self.loops(shape, lane, lanes, at, axis + 1, f)?;
        }
        at.lane = None;
        Ok(())
    }

    /// A loop over 0, step, 2·step, … below n; no loop for one turn.
    pub fn counted(
        &mut self,
        n: usize,
        step: usize,
        f: impl FnOnce(&mut Self, Coord<'c>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if n == 0 {
            return Ok(());
        }
        if n <= step {
            return f(self, Coord::constant(0));
        }
        let b = self.b;
        let mut result = Ok(());
        b.for_each(0, n as i64, step as i64, |i| result = f(self, Coord { var: Some((i, b.top())), plus: 0 }));
        result
    }

    /// Runs `f` in two versions, one for when everything that it touches in views lies inside them; of a large store in a
    /// third, see `stream`.
    pub fn versioned(
        &mut self,
        reads: &[Value],
        store: Option<&'a Op>,
        results: &[melior::ir::Type<'c>],
        f: &mut dyn FnMut(&mut Self) -> Result<Vec<V<'c>>, Error>,
    ) -> Result<Vec<V<'c>>, Error> {
        let mut fresh: Vec<&'a Op> = vec![];
        for op in reads.iter().flat_map(|v| self.virtual_below(*v)) {
            let known = self.inside.contains(&op.results[0]) || fresh.iter().any(|o| o.results == op.results);
            if op.kind == OpKind::Load && !known {
                fresh.push(op);
            }
        }
        if fresh.is_empty() && store.is_none() {
            return f(self);
        }
        let b = self.b;
        let mut condition = None;
        let all: Vec<&'a Op> = fresh.iter().copied().chain(store).collect();
        for op in &all {
            let c = self.is_inside(op);
            condition = Some(condition.map_or(c, |before| b.and(before, c)));
        }
        let Some(condition) = condition else { return f(self) };
        let keys: Vec<Value> = all.iter().map(|op| Self::access_key(op)).collect();
        let floor = self.floor;
        self.look_ahead(&all);
        let stream = store.filter(|op| self.may_stream(op));
        let mut failed = None;
        // All branches run the same code generator; the first error is kept.
        let cell = std::cell::RefCell::new((&mut *self, f, &mut failed));
        let branch = |fast: bool, streaming: bool| {
            let mut guard = cell.borrow_mut();
            let (cx, f, failed) = &mut *guard;
            cx.floor = b.top();
            cx.streaming = streaming;
            if fast {
                cx.inside.extend(&keys);
            }
            let r = f(cx);
            if fast {
                keys.iter().for_each(|k| {
                    cx.inside.remove(k);
                });
            }
            cx.streaming = false;
            cx.floor = floor;
            r.unwrap_or_else(|e| {
                failed.get_or_insert(e);
                vec![]
            })
        };
        let inside = || match stream {
            Some(op) => {
                let much = cell.borrow_mut().0.streams(op);
                b.if_(much, results, || branch(true, true), || branch(true, false))
            }
            None => branch(true, false),
        };
        let values = b.if_(condition, results, inside, || branch(false, false));
        self.ahead.clear();
        failed.map_or(Ok(values), Err)
    }

    /// Programs of a row kernel read a row, then compute on it from the caches: time in which memory could bring the next
    /// row. So a nest that reads a tile for the second time asks for the tile that follows along axis 0, and a nest that
    /// stores after such a one for the place of the next stores.
    fn look_ahead(&mut self, accesses: &[&'a Op]) {
        if self.depth > 0 {
            return;
        }
        let b = self.b;
        let again = |cx: &Self, op: &Op| cx.read_before.contains(&Self::access_key(op));
        for op in accesses {
            let tile = Self::access_key(op);
            let (view, ty) = (self.view(op.operands[0]), self.tile(tile));
            let reread = if op.kind == OpKind::Load { again(self, op) } else { !self.read_before.is_empty() };
            if !reread || ty.rank() < 2 || ty.len() * ty.elem.bytes() > LOOK_AHEAD_LIMIT {
                continue;
            }
            let rows = ty.shape[0] as i64;
            let position = self.scalar(op.operands[1]);
            let more = b.cmp(Cmp::Sle, b.add_c(position, 2 * rows), view.extents[0]);
            let distance = b.mul_c(view.strides[0], rows * ty.elem.bytes() as i64);
            self.ahead.insert(tile, b.select(more, distance, b.c64(0)));
        }
        let loads = accesses.iter().filter(|op| op.kind == OpKind::Load).map(|op| op.results[0]);
        self.read_before.extend(loads);
    }
    /// How far ahead of an access to ask for memory, in bytes.
    pub fn ahead(&self, op: &Op) -> Option<V<'c>> {
        self.ahead.get(&Self::access_key(op)).copied()
    }

    /// Runs `f` for code that may only run where it stands: no memory is read further out.
    pub fn from_here<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let floor = std::mem::replace(&mut self.floor, self.b.top());
        let r = f(self);
        self.floor = floor;
        r
    }

    /// What an access is known by in `inside`: a load's result, a store's tile.
    fn access_key(op: &Op) -> Value {
        if op.kind == OpKind::Load { op.results[0] } else { op.operands[op.operands.len() - 1] }
    }
    /// Whether an access need not be checked here.
    pub fn is_unchecked(&self, op: &Op) -> bool {
        self.inside.contains(&Self::access_key(op))
    }

    /// The virtual values below a tile, itself included, each once.
    fn virtual_below(&self, v: Value) -> Vec<&'a Op> {
        let (mut found, mut seen, mut open) = (vec![], HashSet::new(), vec![v]);
        while let Some(v) = open.pop() {
            if !seen.insert(v) || !matches!(self.homes[v.0 as usize], Some(Home::Virtual)) {
                continue;
            }
            if let Some(op) = self.def(v) {
                found.push(op);
                if op.kind != OpKind::Load {
                    open.extend(op.operands.iter().rev());
                }
            }
        }
        found
    }
}
