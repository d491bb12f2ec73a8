//! The statements that random programs are made of.

use super::generate::Gen;
use crate::{
    AtomicKind, Attr, Attrs, Elem, Key, MemOrder, OpKind, Precision, Quant, ReduceKind, Scalar, TileType, Value,
};

type Statement = fn(&mut Gen) -> Option<Value>;

/// How often, the op it is for (the filter of the configuration goes by it), and how.
const STATEMENTS: &[(usize, OpKind, Statement)] = &[
    (16, OpKind::Add, unary_or_binary),
    (4, OpKind::Cast, cast),
    (2, OpKind::Bitcast, bitcast),
    (3, OpKind::Select, select),
    (2, OpKind::Fma, fma),
    (2, OpKind::Iota, iota),
    (2, OpKind::Broadcast, broadcast),
    (2, OpKind::Permute, permute),
    (2, OpKind::Slice, slice),
    (2, OpKind::Cat, cat),
    (1, OpKind::Reshape, reshape),
    (4, OpKind::Reduce, reduce),
    (2, OpKind::Scan, scan),
    (1, OpKind::ReduceWith, |g| combine(g, OpKind::ReduceWith)),
    (1, OpKind::ScanWith, |g| combine(g, OpKind::ScanWith)),
    (1, OpKind::Sort, sort),
    (1, OpKind::TopK, top_k),
    (1, OpKind::Histogram, histogram),
    (2, OpKind::Take, take),
    (4, OpKind::Load, load),
    (2, OpKind::Narrow, narrow),
    (2, OpKind::Gather, gather),
    (2, OpKind::Scatter, scatter),
    (3, OpKind::Store, state),
    (1, OpKind::Atomic, atomic_shared),
    (1, OpKind::Atomic, atomic_own),
    (1, OpKind::AtomicCas, compare_and_swap),
    (3, OpKind::Dot, dot),
    (1, OpKind::DotGrouped, dot_grouped),
    (1, OpKind::Dequant, dequant),
    (1, OpKind::PackedGather, packed_gather),
    (4, OpKind::For, for_loop),
    (2, OpKind::While, while_loop),
    (4, OpKind::If, if_else),
    (1, OpKind::Assume, assume),
    (1, OpKind::MultipleOf, multiple_of),
    (1, OpKind::Assert, assert),
    (2, OpKind::Dim, dim),
    (3, OpKind::Exp, inexact_function),
    (1, OpKind::Reduce, inexact_sum),
    (1, OpKind::Dot, inexact_dot),
    (2, OpKind::Store, |g| {
        let v = g.any();
        g.emit(v);
        None
    }),
];

impl Gen<'_> {
    /// Adds a random statement.
    pub fn statement(&mut self) {
        self.left = self.left.saturating_sub(1);
        let allowed: Vec<&(usize, OpKind, Statement)> =
            STATEMENTS.iter().filter(|s| (self.config.allow)(s.1)).collect();
        let mut at = self.r.below(allowed.iter().map(|s| s.0).sum());
        for (weight, _, f) in allowed {
            if at < *weight {
                let before = self.pool.len();
                let value = f(self);
                self.pool.extend(value);
                // Much is never used again: let it be seen now and then.
                if self.pool.len() > before && self.r.percent(35) {
                    self.emit(self.pool[self.pool.len() - 1]);
                }
                return;
            }
            at -= weight;
        }
    }
    /// A tile with at least one axis, and one of its axes.
    fn with_axis(&mut self) -> (Value, usize) {
        let v = self.any();
        let t = self.tile(v);
        if t.shape.is_empty() {
            let n = self.extent();
            return (self.k.broadcast(v, &[n]), 0);
        }
        let axis = self.r.below(t.rank());
        (v, axis)
    }
    /// A tile with an axis whose elements pass `ok`, by a cast if need be.
    fn with_axis_of(&mut self, ok: fn(Elem) -> bool) -> (Value, usize) {
        let (v, axis) = self.with_axis();
        if ok(self.tile(v).elem) {
            return (v, axis);
        }
        let elem = self.elem_where(ok);
        (self.convert(v, elem), axis)
    }
    /// Runs `f` inside a region: what it adds to the pool ends with it.
    fn inside<T>(&mut self, statements: usize, extra: &[Value], f: impl FnOnce(&mut Self) -> T) -> T {
        let (mark, outer) = (self.pool.len(), self.left);
        self.left = statements.min(outer);
        let given = self.left;
        self.depth += 1;
        self.pool.extend_from_slice(extra);
        while self.left > 0 {
            self.statement();
        }
        let result = f(self);
        self.pool.truncate(mark);
        self.depth -= 1;
        self.left = outer - given;
        result
    }
}

// ---- elementwise ----

fn unary_or_binary(g: &mut Gen) -> Option<Value> {
    use OpKind::*;
    const ANY: &[OpKind] = &[Eq, Ne, Lt, Le, Gt, Ge];
    const NUM: &[OpKind] = &[Neg, Abs, Add, Sub, Mul, Div, Rem, Min, Max];
    const BITS: &[OpKind] = &[Not, And, Or, Xor];
    const INT: &[OpKind] = &[Shl, Shr, Umulhi];
    const FLOAT: &[OpKind] = &[Sqrt, Floor, Ceil, Round, MinNan, MaxNan, Add, Sub, Mul];
    let x = g.any();
    let t = g.tile(x);
    let sets: &[&[OpKind]] = match t.elem {
        Elem::Bool => &[ANY, BITS, BITS],
        e if e.is_float() => &[ANY, NUM, NUM, FLOAT, FLOAT],
        _ => &[ANY, NUM, NUM, BITS, INT],
    };
    let set = g.r.pick(sets);
    let kind = g.r.pick(set);
    if !(g.config.allow)(kind) {
        return None;
    }
    let unary = matches!(kind, Neg | Abs | Not | Sqrt | Floor | Ceil | Round);
    let y = if unary { x } else { g.of(t.elem, &t.shape) };
    // Rounding shows its ties where they are many.
    let x = if kind == Round { g.halves(x) } else { x };
    let v = if unary { g.k.ew(kind, &[x]) } else { g.k.ew(kind, &[x, y]) };
    Some(if matches!(kind, Min | Max | MinNan | MaxNan) { g.settle_zero(v) } else { v })
}

impl Gen<'_> {
    /// Multiples of a half near a float tile's elements.
    fn halves(&mut self, x: Value) -> Value {
        let t = self.tile(x);
        let [two, half] = [2.0, 0.5].map(|c| self.k.splat(t.elem, c, &t.shape));
        let doubled = self.k.mul(x, two);
        let whole = self.k.ew(OpKind::Floor, &[doubled]);
        self.k.mul(whole, half)
    }
}

fn cast(g: &mut Gen) -> Option<Value> {
    let (v, to) = (g.any(), g.elem());
    (g.tile(v).elem != to).then(|| g.k.cast(v, to))
}

fn bitcast(g: &mut Gen) -> Option<Value> {
    let v = g.any();
    let t = g.tile(v);
    let to = g.elem_where(|e| e.bits() == t.elem.bits() && e != t.elem || e == Elem::F32);
    if to.bits() != t.elem.bits() {
        return None;
    }
    let v = g.settle_nan(v);
    let v = g.settle_zero(v);
    Some(g.k.op(OpKind::Bitcast, &[v], t.with_elem(to)))
}

fn select(g: &mut Gen) -> Option<Value> {
    let x = g.any();
    let t = g.tile(x);
    let (c, y) = (g.of(Elem::Bool, &t.shape), g.of(t.elem, &t.shape));
    Some(g.k.ew(OpKind::Select, &[c, x, y]))
}

fn fma(g: &mut Gen) -> Option<Value> {
    let (elem, shape) = (g.elem_where(Elem::is_float), g.shape());
    let x = [0; 3].map(|_| g.of(elem, &shape));
    Some(g.k.ew(OpKind::Fma, &x))
}

// ---- shape ----

fn iota(g: &mut Gen) -> Option<Value> {
    let (elem, n) = (g.elem_where(Elem::is_int), g.extent());
    Some(g.k.iota(elem, n))
}

fn broadcast(g: &mut Gen) -> Option<Value> {
    let v = g.any();
    let t = g.tile(v);
    let mut shape = t.shape.clone();
    if shape.is_empty() {
        shape = g.shape();
    }
    for n in shape.iter_mut().filter(|n| **n == 1) {
        *n = g.extent();
    }
    (shape.iter().product::<usize>() <= 512).then(|| g.k.broadcast(v, &shape))
}

fn permute(g: &mut Gen) -> Option<Value> {
    let v = g.any();
    let mut perm: Vec<usize> = (0..g.tile(v).rank()).collect();
    for i in (1..perm.len()).rev() {
        perm.swap(i, g.r.below(i + 1));
    }
    Some(g.k.permute(v, &perm))
}

fn slice(g: &mut Gen) -> Option<Value> {
    let (v, axis) = g.with_axis();
    let n = g.tile(v).shape[axis];
    let start = g.r.below(n);
    let size = 1 + g.r.below(n - start);
    Some(g.k.slice(v, axis, start, size))
}

fn cat(g: &mut Gen) -> Option<Value> {
    let (v, axis) = g.with_axis();
    let mut t = g.tile(v);
    t.shape[axis] = g.extent();
    (t.len() + g.tile(v).len() <= 512).then(|| {
        let w = g.of(t.elem, &t.shape);
        g.k.cat(&[v, w], axis)
    })
}

fn reshape(g: &mut Gen) -> Option<Value> {
    let (v, shape) = (g.any(), g.shape());
    Some(g.fit(v, &shape))
}

// ---- along an axis ----

/// Reductions whose result is determined.
fn reduce(g: &mut Gen) -> Option<Value> {
    use ReduceKind::*;
    let (v, axis) = g.with_axis();
    let elem = g.tile(v).elem;
    let kinds: &[ReduceKind] = match elem {
        Elem::Bool => &[Any, All, Xor, Sum],
        e if e.is_float() => &[Max, Min, MaxNan, MinNan, Argmax, Argmin],
        _ => &[Sum, Prod, Max, Min, Argmax, Argmin, Xor],
    };
    let kind = g.r.pick(kinds);
    if matches!(kind, Sum | Prod) && elem.is_int() && g.r.percent(40) {
        let wide = g.elem_where(|e| e.is_int() && e.bits() >= elem.bits());
        return Some(g.k.reduce_to(v, axis, kind, wide));
    }
    let r = g.k.reduce(v, axis, kind);
    Some(g.settle_zero(r))
}

fn scan(g: &mut Gen) -> Option<Value> {
    use ReduceKind::*;
    let (v, axis) = g.with_axis();
    let kinds: &[ReduceKind] = match g.tile(v).elem {
        Elem::Bool => &[Any, All, Xor],
        e if e.is_float() => &[Max, Min, MaxNan, MinNan],
        _ => &[Sum, Prod, Max, Min, Xor],
    };
    let (kind, reverse) = (g.r.pick(kinds), g.r.percent(50));
    let r = g.k.scan(v, axis, kind, reverse);
    Some(g.settle_zero(r))
}

/// Affine maps over integers: (a, b) then (c, d) is (a·c, b·c + d). Associative, not commutative.
fn combine(g: &mut Gen, kind: OpKind) -> Option<Value> {
    let (v, axis) = g.with_axis_of(Elem::is_int);
    let t = g.tile(v);
    let w = g.of(t.elem, &t.shape);
    let reverse = kind == OpKind::ScanWith && g.r.percent(50);
    let r = g.k.combine(kind, &[v, w], axis, reverse, |k, a, b| {
        let (scale, kept) = (k.mul(a[0], b[0]), k.mul(a[1], b[0]));
        vec![scale, k.add(kept, b[1])]
    });
    g.pool.push(r[0]);
    Some(r[1])
}

fn sort(g: &mut Gen) -> Option<Value> {
    let (v, _) = g.with_axis_of(Elem::is_num);
    let (v, descending) = (g.settle_zero(v), g.r.percent(50));
    Some(g.k.sort(v, descending))
}

fn top_k(g: &mut Gen) -> Option<Value> {
    let (v, _) = g.with_axis_of(Elem::is_num);
    let shape = g.tile(v).shape;
    let n = 1 + g.r.below(shape[shape.len() - 1]);
    let v = g.settle_zero(v);
    let (values, indices) = g.k.top_k(v, n);
    g.pool.push(values);
    Some(indices)
}

fn histogram(g: &mut Gen) -> Option<Value> {
    let (elem, n, bins) = (g.elem_where(Elem::is_int), g.extent(), g.extent());
    let v = g.of(elem, &[n]);
    let mask = g.r.percent(50).then(|| g.of(Elem::Bool, &[n]));
    Some(g.k.histogram(v, mask, bins))
}

fn take(g: &mut Gen) -> Option<Value> {
    let (v, axis) = g.with_axis();
    let mut shape = g.tile(v).shape;
    let n = shape[axis];
    shape[axis] = g.extent();
    if shape.iter().product::<usize>() > 512 {
        return None;
    }
    let elem = g.elem_where(Elem::is_int);
    let mut i = g.of(elem, &shape);
    if g.r.percent(70) {
        // Mostly inside.
        let n = g.k.splat(elem, n as f64, &shape);
        i = g.k.ew(OpKind::Rem, &[i, n]);
    }
    Some(g.k.take(v, i, axis))
}

// ---- memory ----

/// A position that may lie before, in or beyond the view.
fn position(g: &mut Gen) -> Value {
    let v = g.small_index(9);
    let d = g.k.at(-(g.r.below(4) as i64));
    if g.r.percent(50) { g.k.at(g.r.below(4) as i64) } else { g.k.add(v, d) }
}

fn load(g: &mut Gen) -> Option<Value> {
    let (elem, shape) = (g.elem(), g.shape());
    let view = g.input_view(elem, shape.len());
    let at: Vec<Value> = shape.iter().map(|_| position(g)).collect();
    let attrs =
        if g.r.percent(40) { Attrs::new().with(Key::Pad, Attr::Scalar(g.r.scalar(elem))) } else { Attrs::new() };
    Some(g.k.with(OpKind::Load, &[&[view], &at[..]].concat(), TileType::new(elem, shape), attrs))
}

fn narrow(g: &mut Gen) -> Option<Value> {
    let (elem, mut shape) = (g.elem(), g.shape());
    if shape.is_empty() {
        shape = vec![g.extent()];
    }
    let view = g.input_view(elem, shape.len());
    let axis = g.r.below(shape.len());
    let (start, len) = (position(g), position(g));
    let part = g.k.narrow(view, axis, start, len);
    let n = g.k.dim(part, axis);
    g.pool.push(n);
    let at: Vec<Value> = shape.iter().map(|_| position(g)).collect();
    Some(g.k.load(part, &at, &shape))
}

fn gather(g: &mut Gen) -> Option<Value> {
    let (elem, rank, shape) = (g.elem(), 1 + g.r.below(3), g.shape());
    let view = g.input_view(elem, rank);
    let index: Vec<Value> = (0..rank)
        .map(|_| {
            let i = g.of(Elem::I64, &shape);
            let n = g.k.splat(Elem::I64, 11.0, &shape);
            if g.r.percent(80) { g.k.ew(OpKind::Rem, &[i, n]) } else { i }
        })
        .collect();
    let mask = g.r.percent(50).then(|| g.of(Elem::Bool, &shape));
    Some(g.k.gather(view, &index, mask))
}

/// Distinct indices 0..n in another order: 5·i + 3 modulo n, where 5 and n have no common factor.
fn distinct(g: &mut Gen, n: usize) -> Value {
    let i = g.k.iota(Elem::I64, n);
    let [five, three, n] = [5, 3, n as i64].map(|v| g.k.constant(Scalar::from_i64(Elem::I64, v), &[n]));
    let i = g.k.mul(i, five);
    let i = g.k.add(i, three);
    g.k.ew(OpKind::Rem, &[i, n])
}

/// Into the program's own row, some lanes beyond it.
fn scatter(g: &mut Gen) -> Option<Value> {
    let (elem, n) = (g.elem(), g.r.pick(&[1, 2, 3, 7, 8, 13, 16]));
    let cut = g.r.below(2).min(n - 1);
    let view = g.state_view(elem, &[n - cut]);
    let (row, column, v) = (g.k.broadcast(g.program, &[n]), distinct(g, n), g.of(elem, &[n]));
    let mask = g.r.percent(50).then(|| g.of(Elem::Bool, &[n]));
    g.k.scatter(view, &[row, column], v, mask);
    None
}

/// Reads and changes the program's own row: the load sees the stores before it.
fn state(g: &mut Gen) -> Option<Value> {
    let (elem, n) = (g.elem(), g.extent());
    let view = g.state_view(elem, &[n]);
    let zero = g.k.at(0);
    let (before, new, at) = (g.k.load(view, &[g.program, zero], &[1, n]), g.of(elem, &[1, n]), position(g));
    g.k.store(view, &[g.program, at], new);
    let after = g.k.load(view, &[g.program, zero], &[1, n]);
    g.pool.push(before);
    Some(after)
}

/// Commuting integer atomics on memory that all programs share; the old values depend on the order and are dropped.
fn atomic_shared(g: &mut Gen) -> Option<Value> {
    let elem = g.elem_where(|e| e.is_int() && e.bits() >= 32);
    let (n, m) = (g.extent(), g.extent());
    let view = g.shared_view(elem, n);
    let kind = g.r.pick(&[
        AtomicKind::Add,
        AtomicKind::Max,
        AtomicKind::Min,
        AtomicKind::And,
        AtomicKind::Or,
        AtomicKind::Xor,
    ]);
    let (i, v) = (g.of(Elem::I64, &[m]), g.of(elem, &[m]));
    let end = g.k.splat(Elem::I64, n as f64 + 1.0, &[m]);
    let i = g.k.ew(OpKind::Rem, &[i, end]);
    let mask = g.r.percent(50).then(|| g.of(Elem::Bool, &[m]));
    g.k.atomic(kind, view, &[i], v, mask);
    None
}

/// Distinct elements of the program's own row: old values are determined.
fn atomic_own(g: &mut Gen) -> Option<Value> {
    let elem = g.elem_where(|e| e.is_num() && e.bits() >= 16);
    let n = g.r.pick(&[1, 2, 3, 7, 8, 13]);
    let view = g.state_view(elem, &[n]);
    let kinds: &[AtomicKind] = if elem.is_float() { &[AtomicKind::Add, AtomicKind::Xchg] } else { AtomicKind::ALL };
    let (kind, order) = (g.r.pick(kinds), g.r.pick(MemOrder::ALL));
    let (row, column, v) = (g.k.broadcast(g.program, &[n]), distinct(g, n), g.of(elem, &[n]));
    Some(g.k.atomic_ordered(kind, order, view, &[row, column], v, None))
}

fn compare_and_swap(g: &mut Gen) -> Option<Value> {
    let elem = g.elem_where(|e| e.is_int() && e.bits() >= 32);
    let n = g.r.pick(&[1, 2, 3, 7, 8, 13]);
    let view = g.state_view(elem, &[n]);
    let (row, column) = (g.k.broadcast(g.program, &[n]), distinct(g, n));
    let new = g.of(elem, &[n]);
    // Half of them match.
    let (now, other, which) = (g.k.gather(view, &[row, column], None), g.of(elem, &[n]), g.of(Elem::Bool, &[n]));
    let expected = g.k.ew(OpKind::Select, &[which, now, other]);
    Some(g.k.compare_and_swap(view, &[row, column], expected, new, None))
}

fn dim(g: &mut Gen) -> Option<Value> {
    let (elem, rank) = (g.elem(), 1 + g.r.below(3));
    let view = g.input_view(elem, rank);
    let axis = g.r.below(rank);
    Some(g.k.dim(view, axis))
}

// ---- matrix products ----

fn dot(g: &mut Gen) -> Option<Value> {
    let (m, depth, n) = (g.extent(), g.extent(), g.extent());
    let elem = g.elem_where(|e| matches!(e, Elem::F32 | Elem::I8 | Elem::U8));
    let acc = if elem == Elem::F32 { elem } else { Elem::I32 };
    let (a, b, c) = (g.of(elem, &[m, depth]), g.of(elem, &[depth, n]), g.of(acc, &[m, n]));
    Some(g.k.dot(a, b, c))
}

/// A packed matrix, a rectangle at a random place of it, its extents.
fn rectangle(g: &mut Gen, quants: &[Quant]) -> (Value, Quant, usize, usize) {
    let quant = g.r.pick(quants);
    let block = quant.block().max(8);
    let layout = g.r.pick(g.config.layouts);
    let (k, n) = (block * (1 + g.r.below(2)), g.r.pick(&[1, 5, 16, 20, 32]));
    let matrix = g.packed_param(quant, layout, k, n);
    let (rows, columns) = (block, g.r.pick(&[4, 16]));
    let axis = g.r.below(2);
    let dim = g.k.with(
        OpKind::PackedDim,
        &[matrix],
        TileType::new(Elem::I32, []),
        Attrs::new().with(Key::Axis, Attr::Int(axis as i64)),
    );
    g.pool.push(dim);
    let at = [rows, columns].map(|extent| {
        let (i, e) = (g.small_index(2), g.k.at(extent as i64));
        g.k.mul(i, e)
    });
    (g.k.packed_load(matrix, at, rows, columns), quant, rows, columns)
}

const QUANTISED: &[Quant] =
    &[Quant::Q4_0, Quant::Q4_1, Quant::Q5_0, Quant::Q5_1, Quant::Q8_0, Quant::Q4_K, Quant::Q5_K, Quant::Q6_K];

fn dot_grouped(g: &mut Gen) -> Option<Value> {
    let (w, _, k, n) = rectangle(g, QUANTISED);
    let m = g.r.pick(&[1, 2, 5]);
    let (codes, scales) = (g.of(Elem::I8, &[m, k]), g.of(Elem::F32, &[m, k / 32]));
    // Beyond the last column, a layout may hold zero weights, which an infinite scale would turn into NaN.
    let scales = g.clamp(scales, -64.0, 64.0);
    let wide = g.k.cast(codes, Elem::I32);
    let wide = g.k.reshape(wide, &[m, k / 32, 32]);
    let sums = g.k.reduce(wide, 2, ReduceKind::Sum);
    let sums = g.k.reshape(sums, &[m, k / 32]);
    let acc = g.of(Elem::F32, &[m, n]);
    Some(g.k.op(OpKind::DotGrouped, &[codes, scales, sums, w, acc], TileType::new(Elem::F32, [m, n])))
}

fn dequant(g: &mut Gen) -> Option<Value> {
    let (w, _, k, n) = rectangle(g, Quant::ALL);
    let t = g.k.op(OpKind::Dequant, &[w], TileType::new(Elem::F32, [k, n]));
    // Most of it is far from the pool's sizes.
    let rows = k.min(16);
    let start = g.r.below(k - rows + 1);
    Some(g.k.slice(t, 0, start, rows))
}

fn packed_gather(g: &mut Gen) -> Option<Value> {
    let quant = g.r.pick(Quant::ALL);
    let (k, n) = (quant.block().max(8), g.r.pick(&[1, 5, 20]));
    let layout = g.r.pick(g.config.layouts);
    let matrix = g.packed_param(quant, layout, k, n);
    let shape = g.shape();
    let index = [k, n].map(|extent| {
        let (i, e) = (g.of(Elem::I64, &shape), g.k.splat(Elem::I64, extent as f64 + 1.0, &shape));
        g.k.ew(OpKind::Rem, &[i, e])
    });
    Some(g.k.op(OpKind::PackedGather, &[matrix, index[0], index[1]], TileType::new(Elem::F32, shape)))
}

// ---- control flow ----

fn carried(g: &mut Gen) -> Vec<Value> {
    (0..1 + g.r.below(3)).map(|_| g.any()).collect()
}

/// Values of the types of `like`, after some statements.
fn next_values(g: &mut Gen, like: &[Value]) -> Vec<Value> {
    like.iter()
        .map(|&v| {
            let t = g.tile(v);
            // Preferably something new.
            let v = g.any();
            let v = g.convert(v, t.elem);
            if g.r.percent(60) { g.fit(v, &t.shape) } else { g.of(t.elem, &t.shape) }
        })
        .collect()
}

fn for_loop(g: &mut Gen) -> Option<Value> {
    if g.depth >= 3 {
        return None;
    }
    let elem = g.elem_where(|e| e.is_int() && e.bits() >= 32);
    let init = carried(g);
    let lo = g.k.constant(Scalar::from_i64(elem, g.r.below(3) as i64), &[]);
    let hi = match g.r.below(3) {
        0 => {
            let n = g.r.below(5) as i64;
            g.scalar_param(Scalar::from_i64(elem, n))
        }
        1 => {
            let i = g.small_index(5);
            g.convert(i, elem)
        }
        _ => g.k.constant(Scalar::from_i64(elem, g.r.below(6) as i64), &[]),
    };
    let step = g.k.constant(Scalar::from_i64(elem, 1 + g.r.below(2) as i64), &[]);
    let types: Vec<_> = [lo].iter().chain(&init).map(|&v| g.k.builder().ty(v).clone()).collect();
    let args = g.k.builder().open(&types);
    let n = 2 + g.r.below(6);
    let next = g.inside(n, &args, |g| next_values(g, &init));
    let body = g.k.builder().close(next);
    let r = g.k.builder().op(
        OpKind::For,
        &[&[lo, hi, step], &init[..]].concat(),
        &types[1..],
        Attrs::new(),
        vec![body],
        here(),
    );
    g.pool.extend(&r);
    None
}

/// Counts down from a small number; the other carried values change freely.
fn while_loop(g: &mut Gen) -> Option<Value> {
    if g.depth >= 3 {
        return None;
    }
    let count = g.small_index(4);
    let init: Vec<Value> = std::iter::once(count).chain(carried(g)).collect();
    let types: Vec<_> = init.iter().map(|&v| g.k.builder().ty(v).clone()).collect();
    let args = g.k.builder().open(&types);
    let zero = g.k.at(0);
    let go = g.k.ew(OpKind::Gt, &[args[0], zero]);
    let cond = g.k.builder().close(vec![go]);
    let args = g.k.builder().open(&types);
    let n = 1 + g.r.below(5);
    let next = g.inside(n, &args, |g| {
        let one = g.k.at(1);
        let count = g.k.ew(OpKind::Sub, &[args[0], one]);
        [vec![count], next_values(g, &init[1..])].concat()
    });
    let body = g.k.builder().close(next);
    let r = g.k.builder().op(OpKind::While, &init, &types, Attrs::new(), vec![cond, body], here());
    g.pool.extend(&r);
    None
}

fn if_else(g: &mut Gen) -> Option<Value> {
    if g.depth >= 3 {
        return None;
    }
    let (c, like) = (g.of(Elem::Bool, &[]), carried(g));
    let types: Vec<_> = like.iter().map(|&v| g.k.builder().ty(v).clone()).collect();
    let branches = [0, 1].map(|_| {
        g.k.builder().open(&[]);
        let n = g.r.below(5);
        let yields = g.inside(n, &[], |g| next_values(g, &like));
        g.k.builder().close(yields)
    });
    let r = g.k.builder().op(OpKind::If, &[c], &types, Attrs::new(), branches.into(), here());
    g.pool.extend(&r);
    None
}

#[track_caller]
fn here() -> crate::Loc {
    std::panic::Location::caller().into()
}

// ---- facts and checks: always true ----

fn assume(g: &mut Gen) -> Option<Value> {
    let v = g.small_index(7);
    let n = g.k.at(7);
    let c = g.k.ew(OpKind::Lt, &[v, n]);
    g.k.effect(OpKind::Assume, &[c], Attrs::new());
    Some(v)
}

fn multiple_of(g: &mut Gen) -> Option<Value> {
    let (elem, shape) = (g.elem_where(|e| e.is_int()), g.shape());
    let v = g.of(elem, &shape);
    // A power of two stays a divisor when the product wraps.
    let eight = g.k.splat(elem, 8.0, &shape);
    let v = g.k.mul(v, eight);
    Some(g.k.with(OpKind::MultipleOf, &[v], TileType::new(elem, shape), Attrs::new().with(Key::N, Attr::Int(8))))
}

fn assert(g: &mut Gen) -> Option<Value> {
    let v = g.any();
    let v = g.settle_nan(v);
    let c = g.k.ew(OpKind::Eq, &[v, v]);
    g.k.effect(OpKind::Assert, &[c], Attrs::new().with(Key::Message, Attr::Str("a value equals itself".into())));
    None
}

// ---- inexact results: only stored ----

/// The bound of a function of one element: a few units in the last place, relative or (below 1) absolute.
fn bound(elem: Elem) -> f64 {
    match elem {
        Elem::F64 => 1e-12,
        Elem::F32 => 4e-6,
        Elem::F16 => 2f64.powi(-9),
        Elem::BF16 => 2f64.powi(-6),
        Elem::F8E4M3 => 2f64.powi(-2),
        _ => 2f64.powi(-1),
    }
}

fn inexact_function(g: &mut Gen) -> Option<Value> {
    use OpKind::*;
    let kind = g.r.pick(&[Exp, Exp2, Log, Log2, Sin, Cos, Tanh, Erf, Rsqrt, Sigmoid, Pow]);
    if !(g.config.allow)(kind) {
        return None;
    }
    let (elem, shape) = (g.elem_where(Elem::is_float), g.shape());
    let x = g.of(elem, &shape);
    let (lo, hi) = match kind {
        Log | Log2 | Rsqrt | Pow => (0.125, 16.0),
        _ => (-6.0, 6.0),
    };
    let x = g.clamp(x, lo, hi);
    let v = if kind == Pow {
        let y = g.of(elem, &shape);
        let y = g.clamp(y, -2.0, 2.0);
        g.k.ew(kind, &[x, y])
    } else {
        g.k.ew(kind, &[x])
    };
    g.emit_within(v, Some(bound(elem)));
    None
}

/// Sums, products and prefix sums of floats of magnitude up to 1, with all orders within the bound.
fn inexact_sum(g: &mut Gen) -> Option<Value> {
    let (v, axis) = g.with_axis_of(Elem::is_float);
    let t = g.tile(v);
    let v = g.clamp(v, -1.0, 1.0);
    let n = t.shape[axis] as f64;
    let (r, factor) = match g.r.below(4) {
        0 => (g.k.reduce(v, axis, ReduceKind::Prod), 1.0),
        1 => {
            let reverse = g.r.percent(50);
            (g.k.scan(v, axis, ReduceKind::Sum, reverse), n)
        }
        2 => {
            let wide = g.elem_where(|e| e.is_float() && e.bits() >= t.elem.bits());
            (g.k.reduce_to(v, axis, ReduceKind::Sum, wide), n)
        }
        _ => (g.k.reduce(v, axis, ReduceKind::Sum), n),
    };
    // Eight-bit sums beyond 2^k lose whole units; the bound is relative for them.
    let elem = g.tile(r).elem;
    g.emit_within(r, Some(bound(elem) * if elem.bits() >= 32 { factor } else { 1.0 }));
    None
}

fn inexact_dot(g: &mut Gen) -> Option<Value> {
    let elem = g.elem_where(|e| e.is_float());
    let (m, depth, n) = (g.extent(), g.extent(), g.extent());
    let acc = elem.accumulator();
    let operand = |g: &mut Gen, elem, shape: &[usize]| {
        let v = g.of(elem, shape);
        g.clamp(v, -1.0, 1.0)
    };
    let (a, b, c) = (operand(g, elem, &[m, depth]), operand(g, elem, &[depth, n]), operand(g, acc, &[m, n]));
    let precision = if elem == Elem::F32 { g.r.pick(Precision::ALL) } else { Precision::Ieee };
    let attrs = Attrs::new().with(Key::Precision, precision.into());
    let v = g.k.with(OpKind::Dot, &[a, b, c], TileType::new(acc, [m, n]), attrs);
    // tf32 keeps 10 bits of each factor.
    let unit = if precision == Precision::Tf32 { 2f64.powi(-9) } else { bound(acc) };
    g.emit_within(v, Some(unit * (depth + 1) as f64));
    None
}
