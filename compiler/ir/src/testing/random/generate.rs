//! The generator's state: a pool of visible values, parameters made on demand, and values of any wanted type.

use super::{Config, Program, data::Random};
use crate::{
    Elem, Key, OpKind, Scalar, TileType, Value, ViewFacts,
    testing::{Arg, Buffer, K, Row},
};

/// Elements of the largest tile.
const LARGEST: usize = 512;

pub(super) struct Gen<'c> {
    pub k: K,
    pub r: Random,
    pub config: &'c Config,
    /// Visible tiles whose bits are determined.
    pub pool: Vec<Value>,
    args: Vec<Arg>,
    bounds: Vec<Option<f64>>,
    grid: [u32; 3],
    /// The program's number (i64).
    pub program: Value,
    pub depth: usize,
    /// Statements left.
    pub left: usize,
    elems: Vec<Elem>,
}

impl<'c> Gen<'c> {
    pub fn new(seed: u64, config: &'c Config) -> Gen<'c> {
        let mut r = Random(seed);
        let mut k = K::new("random");
        let grid = r.pick(&[[1, 1, 1], [2, 1, 1], [3, 1, 1], [2, 2, 1], [1, 2, 3]]);
        let ids: Vec<Value> = (0..3)
            .map(|axis| {
                let p = k.program_id(axis);
                k.cast(p, Elem::I64)
            })
            .collect();
        // p0 + g0·(p1 + g1·p2)
        let count = |k: &mut K, axis: i64| {
            let attrs = crate::Attrs::new().with(Key::Axis, crate::Attr::Int(axis));
            let n = k.with(OpKind::NumPrograms, &[], TileType::new(Elem::I32, []), attrs);
            k.cast(n, Elem::I64)
        };
        let (g0, g1) = (count(&mut k, 0), count(&mut k, 1));
        let t = k.mul(g1, ids[2]);
        let t = k.add(ids[1], t);
        let t = k.mul(g0, t);
        let program = k.add(ids[0], t);
        let basic = [Elem::F32, Elem::I32, Elem::Bool, Elem::I64];
        // f32 and i32 twice as often.
        let elems = Elem::ALL
            .iter()
            .copied()
            .filter(|&e| basic.contains(&e) || (config.elems)(e))
            .chain([Elem::F32, Elem::I32])
            .collect();
        Gen {
            k,
            r,
            config,
            pool: vec![program],
            args: vec![],
            bounds: vec![],
            grid,
            program,
            depth: 0,
            left: config.statements,
            elems,
        }
    }

    pub fn finish(mut self) -> Program {
        for _ in 0..3 {
            self.input();
        }
        while self.left > 0 {
            self.statement();
        }
        // What was computed last must be seen.
        for v in self.pool.clone().into_iter().rev().take(10) {
            self.emit(v);
        }
        let mut row = Row::new("random", "random program", self.k.finish()).grid(self.grid);
        row.args = self.args;
        Program { row, bounds: self.bounds }
    }

    pub fn programs(&self) -> usize {
        self.grid.iter().product::<u32>() as usize
    }
    pub fn tile(&self, v: Value) -> TileType {
        self.k.tile(v)
    }
    pub fn elem(&mut self) -> Elem {
        self.elem_where(|_| true)
    }
    pub fn elem_where(&mut self, ok: impl Fn(Elem) -> bool) -> Elem {
        let of: Vec<Elem> = self.elems.iter().copied().filter(|&e| ok(e)).collect();
        self.r.pick(&of)
    }
    pub fn extent(&mut self) -> usize {
        self.r.pick(&[1, 2, 3, 4, 5, 7, 8, 13, 16])
    }
    pub fn shape(&mut self) -> Vec<usize> {
        loop {
            let rank = self.r.pick(&[0, 1, 1, 1, 2, 2, 2, 3]);
            let s: Vec<usize> = (0..rank).map(|_| self.extent()).collect();
            if s.iter().product::<usize>() <= LARGEST {
                return s;
            }
        }
    }

    // ---- parameters ----

    fn param(&mut self, arg: Arg, bound: Option<f64>) {
        self.args.push(arg);
        self.bounds.push(bound);
    }

    /// A view to read, of random extents, sometimes with a pitch; facts only where they hold.
    pub fn input_view(&mut self, elem: Elem, rank: usize) -> Value {
        let extents: Vec<i64> = (0..rank).map(|_| self.extent() as i64 + self.r.below(4) as i64).collect();
        let mut whole = extents.clone();
        if let Some(last) = whole.last_mut()
            && self.r.percent(40)
        {
            *last += self.r.below(5) as i64;
        }
        let n = whole.iter().product::<i64>() as usize;
        let bits = self.r.elements(elem, n);
        let b = Buffer::new(elem, &whole, &bits).part(&extents);
        let aligned = b.strides[..rank.saturating_sub(1)].iter().all(|s| s * elem.bytes() as i64 % 16 == 0);
        let facts =
            ViewFacts { unit: self.r.percent(50), align16: aligned && self.r.percent(50), small: self.r.percent(50) };
        let name = format!("x{}", self.args.len());
        self.param(Arg::View(b), None);
        self.k.view_with(&name, elem, rank, false, facts)
    }

    /// A row for each program, of this shape, with contents that programs change.
    pub fn state_view(&mut self, elem: Elem, shape: &[usize]) -> Value {
        let extents: Vec<i64> =
            std::iter::once(self.programs()).chain(shape.iter().copied()).map(|n| n as i64).collect();
        let bits = self.r.elements(elem, extents.iter().product::<i64>() as usize);
        let name = format!("s{}", self.args.len());
        self.param(Arg::View(Buffer::new(elem, &extents, &bits)), None);
        self.k.view_mut(&name, elem, extents.len())
    }

    /// A view shared by all programs.
    pub fn shared_view(&mut self, elem: Elem, n: usize) -> Value {
        let bits = self.r.elements(elem, n);
        let name = format!("a{}", self.args.len());
        self.param(Arg::View(Buffer::new(elem, &[n as i64], &bits)), None);
        self.k.view_mut(&name, elem, 1)
    }

    /// A scalar parameter.
    pub fn scalar_param(&mut self, s: Scalar) -> Value {
        let name = format!("n{}", self.args.len());
        self.param(Arg::Scalar(s), None);
        self.k.param(&name, s.elem)
    }

    /// A packed parameter.
    pub fn packed_param(&mut self, quant: crate::Quant, layout: crate::layout::Layout, k: usize, n: usize) -> Value {
        let bytes = self.r.packed(quant, layout, k, n);
        let name = format!("w{}", self.args.len());
        self.param(Arg::Packed(bytes, k, n, quant, layout), None);
        self.k.packed(&name, quant, layout)
    }

    /// Stores a value to an output of its own, a row for each program; sometimes the row is shorter than the tile.
    pub fn emit(&mut self, v: Value) {
        self.emit_within(v, None)
    }
    pub fn emit_within(&mut self, v: Value, bound: Option<f64>) {
        let t = self.tile(v);
        let mut extents: Vec<i64> =
            std::iter::once(self.programs()).chain(t.shape.iter().copied()).map(|n| n as i64).collect();
        let last = extents.len() - 1;
        if last > 0 && extents[last] > 2 && self.r.percent(20) {
            extents[last] -= 1;
        }
        let name = format!("y{}", self.args.len());
        // What no program stores stays as it is: poison, which is a number for inexact outputs.
        let n = extents.iter().product::<i64>() as usize;
        let b = if bound.is_some() {
            Buffer::new(t.elem, &extents, &vec![0; n])
        } else {
            Buffer::poisoned(t.elem, &extents)
        };
        self.param(Arg::View(b), bound);
        let y = self.k.view_mut(&name, t.elem, extents.len());
        let row: Vec<usize> = std::iter::once(1).chain(t.shape.iter().copied()).collect();
        let v = self.k.reshape(v, &row);
        let mut at = vec![self.program];
        for _ in &t.shape {
            at.push(self.k.at(0));
        }
        self.k.store(y, &at, v);
    }

    // ---- values ----

    /// A visible value, the later the likelier.
    pub fn any(&mut self) -> Value {
        let n = self.pool.len();
        let i = if self.r.percent(60) { n - 1 - self.r.below(n.min(6)) } else { self.r.below(n) };
        self.pool[i]
    }

    /// A load from a new input.
    fn input(&mut self) -> Value {
        let (elem, shape) = (self.elem(), self.shape());
        let v = self.input_view(elem, shape.len());
        let at: Vec<Value> = shape.iter().map(|_| self.k.at(0)).collect();
        let t = self.k.load(v, &at, &shape);
        self.pool.push(t);
        t
    }

    /// A value of this type: an existing one if there is, or one made to fit.
    pub fn of(&mut self, elem: Elem, shape: &[usize]) -> Value {
        let want = TileType::new(elem, shape);
        let same: Vec<Value> = self.pool.iter().copied().filter(|&v| self.tile(v) == want).collect();
        if !same.is_empty() && self.r.percent(70) {
            return self.r.pick(&same);
        }
        if self.r.percent(15) {
            let s = self.r.scalar(elem);
            return self.k.constant(s, shape);
        }
        if self.r.percent(15) {
            let v = self.input_view(elem, shape.len());
            let at: Vec<Value> = shape.iter().map(|_| self.k.at(0)).collect();
            return self.k.load(v, &at, shape);
        }
        let v = self.any();
        let v = self.convert(v, elem);
        self.fit(v, shape)
    }

    /// Another element type, by value; bits of floats only where they are no NaN.
    pub fn convert(&mut self, v: Value, elem: Elem) -> Value {
        if self.tile(v).elem == elem { v } else { self.k.cast(v, elem) }
    }

    /// The same elements, repeated or cut, in another shape.
    pub fn fit(&mut self, v: Value, shape: &[usize]) -> Value {
        let t = self.tile(v);
        let n: usize = shape.iter().product();
        if t.shape == shape {
            return v;
        }
        if t.shape.is_empty() {
            return self.k.broadcast(v, shape);
        }
        let mut flat = self.k.reshape(v, &[t.len()]);
        if t.len() < n {
            let copies = vec![flat; n.div_ceil(t.len())];
            flat = self.k.cat(&copies, 0);
        }
        if self.tile(flat).len() > n {
            let start = self.r.below(self.tile(flat).len() - n + 1);
            flat = self.k.slice(flat, 0, start, n);
        }
        self.k.reshape(flat, shape)
    }

    /// A zero from `max` or `min` has an unspecified sign: +0 where it is zero.
    pub fn settle_zero(&mut self, v: Value) -> Value {
        let t = self.tile(v);
        if !t.elem.is_float() {
            return v;
        }
        let zero = self.k.splat(t.elem, 0.0, &t.shape);
        let is = self.k.ew(OpKind::Eq, &[v, zero]);
        self.k.ew(OpKind::Select, &[is, zero, v])
    }

    /// Which NaN is unspecified: 1 where it is one, so that bits may be looked at.
    pub fn settle_nan(&mut self, v: Value) -> Value {
        let t = self.tile(v);
        if !t.elem.is_float() {
            return v;
        }
        let one = self.k.splat(t.elem, 1.0, &t.shape);
        let number = self.k.ew(OpKind::Eq, &[v, v]);
        self.k.ew(OpKind::Select, &[number, v, one])
    }

    /// Clamped to lo..=hi; a NaN becomes hi.
    pub fn clamp(&mut self, v: Value, lo: f64, hi: f64) -> Value {
        let t = self.tile(v);
        let (lo, hi) = (self.k.splat(t.elem, lo, &t.shape), self.k.splat(t.elem, hi, &t.shape));
        let v = self.k.ew(OpKind::Min, &[v, hi]);
        let v = self.k.ew(OpKind::Max, &[v, lo]);
        self.settle_zero(v)
    }

    /// A scalar in 0..n (i64).
    pub fn small_index(&mut self, n: usize) -> Value {
        let v = self.of(Elem::I64, &[]);
        let n = self.k.at(n as i64);
        let v = self.k.ew(OpKind::Rem, &[v, n]);
        self.k.ew(OpKind::Abs, &[v])
    }
}
