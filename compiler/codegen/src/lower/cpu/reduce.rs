//! Reductions along an axis.
//!
//! **Order.** It is part of a kernel's numbers and depends on the axis and its extent alone: never on the target, nor on the
//! other extents, which are a schedule's to choose. Along the last axis: chunks of 16 elements go round-robin to 1, 2 or 4 accumulators of 16 lanes, which are then combined pairwise, and
//! their lanes by halves. Along another axis: one accumulator an output, in ascending order. A combiner given as a region
//! may not commute, so it always folds in ascending order.

use super::{
    Error,
    at::{At, Coord},
    build::{Build, Cmp, FCmp, V},
    convert::cast,
    cx::{Cx, Home},
    machine::carrier,
};
use melior::ir::Type;
use tegula_ir::{Elem, Key, Op, ReduceKind, Value};

/// Lanes of an accumulator along the lane axis, on every target.
const LANES: usize = 16;

/// A reduction's arithmetic: how elements become states (one or two registers), how states combine, what comes out.
pub struct Combine<'a, 'c> {
    b: &'a Build<'c>,
    kind: ReduceKind,
    from: Elem,
    /// Element type of the accumulators.
    acc: Elem,
    to: Elem,
    /// For max and min of floats: states are never NaN and begin with the least or greatest value, so that a comparison
    /// does. A reduction that ends there may have seen NaN only, and is done again without this.
    quick: bool,
}

impl<'a, 'c> Combine<'a, 'c> {
    pub fn new(b: &'a Build<'c>, kind: ReduceKind, from: Elem, to: Elem) -> Self {
        use ReduceKind::*;
        let acc = match kind {
            // A wider result type names the accumulator.
            Sum | Prod if to.bits() >= from.accumulator().bits() => to.accumulator(),
            Sum | Prod => from.accumulator(),
            _ if from.is_float() => from.accumulator(),
            _ => from,
        };
        let quick = acc.is_float() && matches!(kind, Max | Min);
        Combine { b, kind, from, acc, to, quick }
    }
    /// The same with states that may be NaN: what prefixes need.
    pub fn careful(self) -> Self {
        Combine { quick: false, ..self }
    }
    fn is_arg(&self) -> bool {
        matches!(self.kind, ReduceKind::Argmax | ReduceKind::Argmin)
    }
    /// Types of a state's registers.
    pub fn types(&self, lanes: usize) -> Vec<Type<'c>> {
        let mut types = vec![self.b.vec(carrier(self.b, self.acc), lanes)];
        if self.is_arg() {
            types.push(self.b.vec(self.b.i32(), lanes));
        }
        types
    }
    /// The state of no elements.
    pub fn identity(&self, lanes: usize) -> Vec<V<'c>> {
        use ReduceKind::*;
        let (b, e) = (self.b, self.acc);
        let float = |v: f64| if e.bits() == 64 { v.to_bits() } else { (v as f32).to_bits().into() };
        let top = 1u64 << (e.bits() - 1);
        let all = u64::MAX >> (64 - e.bits());
        let bits = match self.kind {
            Sum | Xor | Any => 0,
            All => 1,
            Prod if e.is_float() => float(1.0),
            Prod => 1,
            // A NaN is ignored, and all there is when nothing else comes.
            Max if self.quick => float(f64::NEG_INFINITY),
            Min if self.quick => float(f64::INFINITY),
            Max | Min | Argmax | Argmin if e.is_float() => float(f64::NAN),
            MaxNan => float(f64::NEG_INFINITY),
            MinNan => float(f64::INFINITY),
            Max | Argmax => {
                if e.is_signed() {
                    top
                } else {
                    0
                }
            }
            Min | Argmin => {
                if e.is_signed() {
                    top - 1
                } else {
                    all
                }
            }
        };
        let mut state = vec![b.constant_bits(carrier(b, e), bits, lanes)];
        if self.is_arg() {
            state.push(b.constant_bits(b.i32(), 0xffff_ffff, lanes)); // −1: no element yet
        }
        state
    }
    /// The state of one element; `index` (i32) is its place along the axis.
    pub fn lift(&self, x: V<'c>, index: V<'c>) -> Vec<V<'c>> {
        let b = self.b;
        let v = cast(b, x, self.from, self.acc);
        if !self.is_arg() {
            return vec![v];
        }
        let i =
            if self.acc.is_float() { b.select(b.cmpf(FCmp::Uno, v, v), b.int_like(index, -1), index) } else { index };
        vec![v, i]
    }
    /// The state of the elements of `x`, then those of `y`.
    pub fn merge(&self, x: &[V<'c>], y: &[V<'c>]) -> Vec<V<'c>> {
        use ReduceKind::*;
        let (b, float, signed) = (self.b, self.acc.is_float(), self.acc.is_signed());
        let (p, q) = (x[0], y[0]);
        vec![match self.kind {
            Sum if float => b.addf(p, q),
            Sum => b.add(p, q),
            Prod if float => b.mulf(p, q),
            Prod => b.mul(p, q),
            Max if self.quick => b.select(b.cmpf(FCmp::Ogt, q, p), q, p),
            Min if self.quick => b.select(b.cmpf(FCmp::Olt, q, p), q, p),
            Max if float => b.maxnumf(p, q),
            Max if signed => b.maxs(p, q),
            Max => b.maxu(p, q),
            Min if float => b.minnumf(p, q),
            Min if signed => b.mins(p, q),
            Min => b.minu(p, q),
            MaxNan => b.select(b.cmpf(FCmp::Uno, p, q), b.addf(p, q), b.maxnumf(p, q)),
            MinNan => b.select(b.cmpf(FCmp::Uno, p, q), b.addf(p, q), b.minnumf(p, q)),
            Any => b.or(p, q),
            All => b.and(p, q),
            Xor => b.xor(p, q),
            Argmax | Argmin => return self.merge_arg(x, y),
        }]
    }
    fn merge_arg(&self, x: &[V<'c>], y: &[V<'c>]) -> Vec<V<'c>> {
        let b = self.b;
        let most = self.kind == ReduceKind::Argmax;
        let (better, equal) = if self.acc.is_float() {
            (b.cmpf(if most { FCmp::Ogt } else { FCmp::Olt }, y[0], x[0]), b.cmpf(FCmp::Oeq, y[0], x[0]))
        } else {
            let how = match (most, self.acc.is_signed()) {
                (true, true) => Cmp::Sgt,
                (true, false) => Cmp::Ugt,
                (false, true) => Cmp::Slt,
                (false, false) => Cmp::Ult,
            };
            (b.cmp(how, y[0], x[0]), b.cmp(Cmp::Eq, y[0], x[0]))
        };
        let none = b.int_like(x[1], -1);
        let first = b.and(equal, b.cmp(Cmp::Slt, y[1], x[1]));
        let x_empty = b.cmp(Cmp::Eq, x[1], none);
        let y_there = b.cmp(Cmp::Ne, y[1], none);
        let take = b.and(y_there, b.or(x_empty, b.or(better, first)));
        vec![b.select(take, y[0], x[0]), b.select(take, y[1], x[1])]
    }
    /// The result, from a state.
    pub fn finish(&self, state: &[V<'c>]) -> V<'c> {
        let b = self.b;
        if self.is_arg() {
            return b.maxs(state[1], b.int_like(state[1], 0));
        }
        cast(b, state[0], self.acc, self.to)
    }
    /// The state, or where a quick one saw nothing but NaN perhaps, that of `careful`.
    fn settled(&self, state: Vec<V<'c>>, careful: impl FnOnce(&Self) -> Vec<V<'c>>) -> Vec<V<'c>> {
        if !self.quick {
            return state;
        }
        let b = self.b;
        let lanes = b.lanes(state[0]);
        let doubtful = b.any(b.cmpf(FCmp::Oeq, state[0], self.identity(lanes)[0]));
        let careful = || careful(&Combine { quick: false, ..*self });
        b.if_(doubtful, &self.types(lanes), careful, || state)
    }
    /// The state of all lanes: by halves.
    fn across(&self, mut state: Vec<V<'c>>) -> Vec<V<'c>> {
        let b = self.b;
        let mut lanes = LANES;
        while lanes > 1 {
            lanes /= 2;
            let half = |start: usize| -> Vec<V<'c>> {
                state.iter().map(|v| if lanes == 1 { b.extract(*v, start) } else { b.part(*v, start, lanes) }).collect()
            };
            state = self.merge(&half(0), &half(lanes));
        }
        state
    }
}

/// A reduction's kind, from its attribute.
pub fn kind_of(op: &Op) -> ReduceKind {
    op.attrs.sym(Key::Kind).and_then(ReduceKind::from_name).unwrap_or(ReduceKind::Sum)
}
pub fn axis_of(op: &Op) -> usize {
    op.attrs.int(Key::Axis).unwrap_or(0) as usize
}

impl<'a, 'c> Cx<'a, 'c> {
    /// `reduce`.
    pub fn reduce(&mut self, op: &'a Op) -> Result<(), Error> {
        let (source, result, axis) = (op.operands[0], op.results[0], axis_of(op));
        let (from, to) = (self.tile(source).clone(), self.tile(result).clone());
        let combine = Combine::new(self.b, kind_of(op), from.elem, to.elem);
        let b = self.b;
        let horizontal = axis + 1 == from.rank();
        if to.len() == 1 {
            let ty = [carrier(b, to.elem)];
            let x = self.versioned(&[source], None, &ty, &mut |cx| {
                let at = At::origin(from.rank());
                let state = if horizontal {
                    cx.fold_lanes(&combine, source, axis, &at)
                } else {
                    cx.fold_ascending(&combine, source, axis, &at)
                };
                Ok(vec![combine.finish(&state)])
            })?[0];
            self.set_home(result, Home::Scalar(x));
            return Ok(());
        }
        let buf = self.result_buffer(result);
        let shape = to.shape.clone();
        if horizontal {
            self.versioned(&[source], None, &[], &mut |cx| {
                cx.loops(&shape, None, 1, &mut At::origin(shape.len()), 0, &mut |cx, at| {
                    let x = combine.finish(&cx.fold_lanes(&combine, source, axis, at));
                    cx.write(&buf, at, x);
                    Ok(())
                })?;
                Ok(vec![])
            })?;
        } else {
            self.nest(&shape, &[source], None, &mut |cx, at| {
                let state = cx.fold_ascending(&combine, source, axis, at);
                cx.write(&buf, at, combine.finish(&state));
                Ok(())
            })?;
        }
        self.set_home(result, Home::Buffer(buf));
        Ok(())
    }

    /// The state of all elements along the lane axis, at a place along the other axes: a scalar.
    fn fold_lanes(&mut self, combine: &Combine<'_, 'c>, source: Value, axis: usize, at: &At<'c>) -> Vec<V<'c>> {
        let state = self.fold_chunks(combine, source, axis, at);
        combine.settled(state, |careful| self.from_here(|cx| cx.fold_chunks(careful, source, axis, at)))
    }

    fn fold_chunks(&mut self, combine: &Combine<'_, 'c>, source: Value, axis: usize, at: &At<'c>) -> Vec<V<'c>> {
        let (b, n) = (self.b, self.tile(source).shape[axis]);
        let chunks = n / LANES;
        let ways = if chunks >= 4 { 4 } else { chunks.clamp(1, 2) };
        let mut chunk = |cx: &mut Self, c: Coord<'c>, lanes: usize| {
            let mut at = at.with(axis, c);
            at.lane = (lanes > 1).then_some((axis, lanes));
            let x = cx.eval(source, &at);
            let first = b.trunci(c.value(b), b.i32());
            let index = if lanes > 1 { b.add(b.splat(first, lanes), b.iota(b.i32(), lanes)) } else { first };
            combine.lift(x, index)
        };
        let width = combine.types(LANES).len();
        let mut acc: Vec<V> = (0..ways).flat_map(|_| combine.identity(LANES)).collect();
        let rounds = chunks / ways;
        let step = ways * LANES;
        let round = |cx: &mut Self,
                     c: Coord<'c>,
                     acc: &[V<'c>],
                     chunk: &mut dyn FnMut(&mut Self, Coord<'c>, usize) -> Vec<V<'c>>| {
            let mut next = vec![];
            for w in 0..ways {
                let x = chunk(cx, Coord { plus: c.plus + (w * LANES) as i64, ..c }, LANES);
                next.extend(combine.merge(&acc[w * width..][..width], &x));
            }
            next
        };
        if rounds == 1 {
            acc = round(self, Coord::constant(0), &acc, &mut chunk);
        } else if rounds > 1 {
            let (lo, hi, by) = (b.c64(0), b.c64((rounds * step) as i64), b.c64(step as i64));
            acc = b.for_(lo, hi, by, &acc, |i, acc| {
                round(self, Coord { var: Some((i, b.top())), plus: 0 }, acc, &mut chunk)
            });
        }
        // What is left: whole chunks, then a part of one, filled up with the identity.
        let mut done = rounds * step;
        for w in 0..ways {
            let lanes = (n - done).min(LANES);
            if lanes == 0 {
                break;
            }
            let x = chunk(self, Coord::constant(done as i64), lanes);
            let identity = combine.identity(LANES);
            let x: Vec<V> = x.iter().zip(&identity).map(|(v, id)| spread(b, *v, *id, lanes)).collect();
            let merged = combine.merge(&acc[w * width..][..width], &x);
            acc.splice(w * width..(w + 1) * width, merged);
            done += lanes;
        }
        let mut states: Vec<Vec<V>> = acc.chunks(width).map(<[V]>::to_vec).collect();
        while states.len() > 1 {
            states = states.chunks(2).map(|p| combine.merge(&p[0], &p[1])).collect();
        }
        combine.across(states.remove(0))
    }

    /// The state of all elements along an axis in ascending order; lanes of `at` run along another.
    fn fold_ascending(&mut self, combine: &Combine<'_, 'c>, source: Value, axis: usize, at: &At<'c>) -> Vec<V<'c>> {
        let state = self.fold_one_by_one(combine, source, axis, at);
        combine.settled(state, |careful| self.from_here(|cx| cx.fold_one_by_one(careful, source, axis, at)))
    }

    fn fold_one_by_one(&mut self, combine: &Combine<'_, 'c>, source: Value, axis: usize, at: &At<'c>) -> Vec<V<'c>> {
        let (b, n) = (self.b, self.tile(source).shape[axis]);
        b.for_(b.c64(0), b.c64(n as i64), b.c64(1), &combine.identity(at.lanes()), |i, acc| {
            let x = self.eval(source, &at.with(axis, Coord { var: Some((i, b.top())), plus: 0 }));
            let index = b.splat(b.trunci(i, b.i32()), at.lanes());
            combine.merge(acc, &combine.lift(x, index))
        })
    }
}

/// `lanes` lanes of x (a scalar for one), the rest of `fill`.
fn spread<'c>(b: &Build<'c>, x: V<'c>, fill: V<'c>, lanes: usize) -> V<'c> {
    match lanes {
        LANES => x,
        1 => b.insert(fill, x, 0),
        _ => {
            // Operands of a shuffle need not be equally long in MLIR.
            let indices: Vec<usize> = (0..LANES).map(|i| if i < lanes { i } else { lanes + i }).collect();
            b.shuffle(x, fill, &indices)
        }
    }
}
