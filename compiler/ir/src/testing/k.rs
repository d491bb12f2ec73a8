//! Kernels by hand: [`Builder`] with short names and result types worked out. Misuse panics: it is for tests.

use crate::{
    AtomicKind, Attr, Attrs, Builder, Elem, Kernel, Key, Loc, MemOrder, OpKind, PackedType, QTileType, Quant,
    ReduceKind, Scalar, TileType, Type, Value, ViewFacts, ViewType, layout::Layout,
};
use std::panic::Location;

/// A kernel under construction. Every op gets the line that called the method.
#[derive(Debug)]
pub struct K {
    b: Builder,
}

impl K {
    /// Starts a kernel.
    pub fn new(name: &str) -> K {
        K { b: Builder::new(name) }
    }
    /// Ends it. A kernel that the verifier refuses panics.
    pub fn finish(self) -> Kernel {
        let k = self.b.finish();
        if let Err(e) = k.verify() {
            panic!("{e}\n{k}");
        }
        k
    }
    /// The builder, for what has no method here.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.b
    }

    // ---- parameters ----

    /// A view that is read.
    pub fn view(&mut self, name: &str, elem: Elem, rank: usize) -> Value {
        self.view_with(name, elem, rank, false, ViewFacts::default())
    }
    /// A view that is written.
    pub fn view_mut(&mut self, name: &str, elem: Elem, rank: usize) -> Value {
        self.view_with(name, elem, rank, true, ViewFacts::default())
    }
    /// A view with facts.
    pub fn view_with(&mut self, name: &str, elem: Elem, rank: usize, mutable: bool, facts: ViewFacts) -> Value {
        self.b.param(name, Type::View(ViewType { elem, rank, mutable, facts }))
    }
    /// A scalar.
    pub fn param(&mut self, name: &str, elem: Elem) -> Value {
        self.b.param(name, Type::scalar(elem))
    }
    /// A packed matrix.
    pub fn packed(&mut self, name: &str, quant: Quant, layout: Layout) -> Value {
        self.b.param(name, Type::Packed(PackedType { quant, layout: layout.name().into() }))
    }

    // ---- plumbing ----

    /// The tile type of a value.
    pub fn tile(&self, v: Value) -> TileType {
        match self.b.ty(v) {
            Type::Tile(t) => t.clone(),
            t => panic!("expected a tile, found `{t}`"),
        }
    }
    fn view_type(&self, v: Value) -> ViewType {
        *self.b.ty(v).as_view().expect("a view")
    }
    /// An op with one result, and no attributes.
    #[track_caller]
    pub fn op(&mut self, kind: OpKind, operands: &[Value], result: TileType) -> Value {
        self.with(kind, operands, result, Attrs::new())
    }
    /// An op with one result.
    #[track_caller]
    pub fn with(&mut self, kind: OpKind, operands: &[Value], result: TileType, attrs: Attrs) -> Value {
        self.b.op1(kind, operands, result.into(), attrs, Location::caller().into())
    }
    /// An op without result.
    #[track_caller]
    pub fn effect(&mut self, kind: OpKind, operands: &[Value], attrs: Attrs) {
        self.b.op(kind, operands, &[], attrs, vec![], Location::caller().into());
    }

    // ---- values out of nothing ----

    /// A constant tile.
    #[track_caller]
    pub fn constant(&mut self, value: Scalar, shape: &[usize]) -> Value {
        self.with(
            OpKind::Const,
            &[],
            TileType::new(value.elem, shape),
            Attrs::new().with(Key::Value, Attr::Scalar(value)),
        )
    }
    /// A constant tile by value, rounded to the type.
    #[track_caller]
    pub fn splat(&mut self, elem: Elem, value: f64, shape: &[usize]) -> Value {
        self.constant(Scalar::from_f64(elem, value), shape)
    }
    /// A constant scalar integer.
    #[track_caller]
    pub fn int(&mut self, elem: Elem, value: i64) -> Value {
        self.constant(Scalar::from_i64(elem, value), &[])
    }
    /// A constant i64: a position.
    #[track_caller]
    pub fn at(&mut self, value: i64) -> Value {
        self.int(Elem::I64, value)
    }
    /// 0, 1, 2, …
    #[track_caller]
    pub fn iota(&mut self, elem: Elem, n: usize) -> Value {
        self.op(OpKind::Iota, &[], TileType::new(elem, [n]))
    }
    /// The program's index along a grid axis.
    #[track_caller]
    pub fn program_id(&mut self, axis: usize) -> Value {
        self.with(
            OpKind::ProgramId,
            &[],
            TileType::new(Elem::I32, []),
            Attrs::new().with(Key::Axis, Attr::Int(axis as i64)),
        )
    }

    // ---- elementwise ----

    /// Any elementwise op whose result has the operands' type, or is `bool` for comparisons.
    #[track_caller]
    pub fn ew(&mut self, kind: OpKind, operands: &[Value]) -> Value {
        let t = self.tile(operands[operands.len() - 1]);
        let compares = matches!(kind, OpKind::Eq | OpKind::Ne | OpKind::Lt | OpKind::Le | OpKind::Gt | OpKind::Ge);
        let result = if compares { t.with_elem(Elem::Bool) } else { t };
        self.op(kind, operands, result)
    }
    /// x + y.
    #[track_caller]
    pub fn add(&mut self, x: Value, y: Value) -> Value {
        self.ew(OpKind::Add, &[x, y])
    }
    /// x · y.
    #[track_caller]
    pub fn mul(&mut self, x: Value, y: Value) -> Value {
        self.ew(OpKind::Mul, &[x, y])
    }
    /// Value conversion.
    #[track_caller]
    pub fn cast(&mut self, x: Value, elem: Elem) -> Value {
        let t = self.tile(x).with_elem(elem);
        self.op(OpKind::Cast, &[x], t)
    }

    // ---- shape ----

    /// Repeats along axes of extent 1, or a scalar to any shape.
    #[track_caller]
    pub fn broadcast(&mut self, x: Value, shape: &[usize]) -> Value {
        let t = TileType::new(self.tile(x).elem, shape);
        self.op(OpKind::Broadcast, &[x], t)
    }
    /// Row-major order under another shape.
    #[track_caller]
    pub fn reshape(&mut self, x: Value, shape: &[usize]) -> Value {
        let t = TileType::new(self.tile(x).elem, shape);
        self.op(OpKind::Reshape, &[x], t)
    }
    /// Result axis i is operand axis `perm[i]`.
    #[track_caller]
    pub fn permute(&mut self, x: Value, perm: &[usize]) -> Value {
        let t = self.tile(x);
        let shape: Vec<usize> = perm.iter().map(|&p| t.shape[p]).collect();
        let perm = Attr::Ints(perm.iter().map(|&p| p as i64).collect());
        self.with(OpKind::Permute, &[x], TileType::new(t.elem, shape), Attrs::new().with(Key::Perm, perm))
    }
    /// `size` elements from `start` along `axis`.
    #[track_caller]
    pub fn slice(&mut self, x: Value, axis: usize, start: usize, size: usize) -> Value {
        let mut t = self.tile(x);
        t.shape[axis] = size;
        let attrs = axis_attr(axis).with(Key::Start, Attr::Int(start as i64)).with(Key::Size, Attr::Int(size as i64));
        self.with(OpKind::Slice, &[x], t, attrs)
    }
    /// One tile after the other along `axis`.
    #[track_caller]
    pub fn cat(&mut self, x: &[Value], axis: usize) -> Value {
        let mut t = self.tile(x[0]);
        t.shape[axis] = x.iter().map(|&v| self.tile(v).shape[axis]).sum();
        self.with(OpKind::Cat, x, t, axis_attr(axis))
    }

    // ---- along an axis ----

    /// Reduction to the type that the language gives by default.
    #[track_caller]
    pub fn reduce(&mut self, x: Value, axis: usize, kind: ReduceKind) -> Value {
        let elem = self.tile(x).elem;
        let result = match kind {
            ReduceKind::Argmax | ReduceKind::Argmin => Elem::I32,
            ReduceKind::Sum if elem == Elem::Bool => Elem::I32,
            _ => elem,
        };
        self.reduce_to(x, axis, kind, result)
    }
    /// Reduction to a given type.
    #[track_caller]
    pub fn reduce_to(&mut self, x: Value, axis: usize, kind: ReduceKind, elem: Elem) -> Value {
        let mut t = self.tile(x).with_elem(elem);
        t.shape[axis] = 1;
        self.with(OpKind::Reduce, &[x], t, axis_attr(axis).with(Key::Kind, kind.into()))
    }
    /// Inclusive scan.
    #[track_caller]
    pub fn scan(&mut self, x: Value, axis: usize, kind: ReduceKind, reverse: bool) -> Value {
        let t = self.tile(x);
        let attrs = axis_attr(axis).with(Key::Kind, kind.into());
        self.with(OpKind::Scan, &[x], t, if reverse { attrs.with(Key::Reverse, Attr::Flag) } else { attrs })
    }
    /// `reduce_with` or `scan_with`.
    #[track_caller]
    pub fn combine(
        &mut self,
        kind: OpKind,
        x: &[Value],
        axis: usize,
        reverse: bool,
        f: impl FnOnce(&mut K, &[Value], &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let loc: Loc = Location::caller().into();
        let scalars: Vec<Type> = x.iter().map(|&v| Type::scalar(self.tile(v).elem)).collect();
        let args = self.b.open(&[scalars.clone(), scalars].concat());
        let (left, right) = args.split_at(x.len());
        let yields = f(self, left, right);
        let region = self.b.close(yields);
        let types: Vec<Type> = x
            .iter()
            .map(|&v| {
                let mut t = self.tile(v);
                if kind == OpKind::ReduceWith {
                    t.shape[axis] = 1;
                }
                t.into()
            })
            .collect();
        let attrs = if reverse { axis_attr(axis).with(Key::Reverse, Attr::Flag) } else { axis_attr(axis) };
        self.b.op(kind, x, &types, attrs, vec![region], loc)
    }
    /// Sorts along the last axis.
    #[track_caller]
    pub fn sort(&mut self, x: Value, descending: bool) -> Value {
        let t = self.tile(x);
        self.with(
            OpKind::Sort,
            &[x],
            t,
            if descending { Attrs::new().with(Key::Descending, Attr::Flag) } else { Attrs::new() },
        )
    }
    /// Values and indices of the `k` largest.
    #[track_caller]
    pub fn top_k(&mut self, x: Value, k: usize) -> (Value, Value) {
        let mut t = self.tile(x);
        *t.shape.last_mut().expect("an axis") = k;
        let types = [t.clone().into(), t.with_elem(Elem::I32).into()];
        let r = self.b.op(
            OpKind::TopK,
            &[x],
            &types,
            Attrs::new().with(Key::K, Attr::Int(k as i64)),
            vec![],
            Location::caller().into(),
        );
        (r[0], r[1])
    }
    /// Counts of 0..bins.
    #[track_caller]
    pub fn histogram(&mut self, x: Value, mask: Option<Value>, bins: usize) -> Value {
        let attrs = masked(Attrs::new().with(Key::Bins, Attr::Int(bins as i64)), mask);
        self.with(OpKind::Histogram, &[&[x][..], mask.as_slice()].concat(), TileType::new(Elem::I32, [bins]), attrs)
    }
    /// Elements along `axis` at `index`.
    #[track_caller]
    pub fn take(&mut self, x: Value, index: Value, axis: usize) -> Value {
        let t = self.tile(index).with_elem(self.tile(x).elem);
        self.with(OpKind::Take, &[x, index], t, axis_attr(axis))
    }

    // ---- memory ----

    /// Extent of a view (i32).
    #[track_caller]
    pub fn dim(&mut self, view: Value, axis: usize) -> Value {
        self.with(OpKind::Dim, &[view], TileType::new(Elem::I32, []), axis_attr(axis))
    }
    /// A tile at an i64 position.
    #[track_caller]
    pub fn load(&mut self, view: Value, at: &[Value], shape: &[usize]) -> Value {
        let elem = self.view_type(view).elem;
        self.op(OpKind::Load, &[&[view], at].concat(), TileType::new(elem, shape))
    }
    /// A tile at an i64 position, with a pad value.
    #[track_caller]
    pub fn load_pad(&mut self, view: Value, at: &[Value], shape: &[usize], pad: f64) -> Value {
        let elem = self.view_type(view).elem;
        let attrs = Attrs::new().with(Key::Pad, Attr::Scalar(Scalar::from_f64(elem, pad)));
        self.with(OpKind::Load, &[&[view], at].concat(), TileType::new(elem, shape), attrs)
    }
    /// The tile at the view's first element.
    #[track_caller]
    pub fn read(&mut self, view: Value, shape: &[usize]) -> Value {
        let at: Vec<Value> = shape.iter().map(|_| self.at(0)).collect();
        self.load(view, &at, shape)
    }
    /// Stores a tile at an i64 position.
    #[track_caller]
    pub fn store(&mut self, view: Value, at: &[Value], tile: Value) {
        self.effect(OpKind::Store, &[&[view], at, &[tile]].concat(), Attrs::new())
    }
    /// Stores a tile at the view's first element.
    #[track_caller]
    pub fn write(&mut self, view: Value, tile: Value) {
        let at: Vec<Value> = (0..self.view_type(view).rank).map(|_| self.at(0)).collect();
        self.store(view, &at, tile);
    }
    /// Part of a view along `axis`.
    #[track_caller]
    pub fn narrow(&mut self, view: Value, axis: usize, start: Value, len: Value) -> Value {
        let mut t = self.view_type(view);
        t.facts.align16 &= axis + 1 != t.rank;
        self.b.op1(OpKind::Narrow, &[view, start, len], Type::View(t), axis_attr(axis), Location::caller().into())
    }
    /// Elements at index tiles (i64).
    #[track_caller]
    pub fn gather(&mut self, view: Value, index: &[Value], mask: Option<Value>) -> Value {
        let t = self.tile(index[0]).with_elem(self.view_type(view).elem);
        self.with(OpKind::Gather, &[&[view], index, mask.as_slice()].concat(), t, masked(Attrs::new(), mask))
    }
    /// Stores elements at index tiles (i64).
    #[track_caller]
    pub fn scatter(&mut self, view: Value, index: &[Value], values: Value, mask: Option<Value>) {
        self.effect(
            OpKind::Scatter,
            &[&[view], index, &[values], mask.as_slice()].concat(),
            masked(Attrs::new(), mask),
        );
    }
    /// Read-modify-write at index tiles (i64), relaxed.
    #[track_caller]
    pub fn atomic(
        &mut self,
        kind: AtomicKind,
        view: Value,
        index: &[Value],
        values: Value,
        mask: Option<Value>,
    ) -> Value {
        self.atomic_ordered(kind, MemOrder::Relaxed, view, index, values, mask)
    }
    /// Read-modify-write at index tiles (i64).
    #[track_caller]
    pub fn atomic_ordered(
        &mut self,
        kind: AtomicKind,
        order: MemOrder,
        view: Value,
        index: &[Value],
        values: Value,
        mask: Option<Value>,
    ) -> Value {
        let t = self.tile(values);
        let attrs = masked(Attrs::new().with(Key::Kind, kind.into()).with(Key::Order, order.into()), mask);
        self.with(OpKind::Atomic, &[&[view], index, &[values], mask.as_slice()].concat(), t, attrs)
    }
    /// Compare and swap at index tiles (i64), relaxed.
    #[track_caller]
    pub fn compare_and_swap(
        &mut self,
        view: Value,
        index: &[Value],
        expected: Value,
        new: Value,
        mask: Option<Value>,
    ) -> Value {
        let t = self.tile(new);
        let attrs = masked(Attrs::new().with(Key::Order, MemOrder::Relaxed.into()), mask);
        self.with(OpKind::AtomicCas, &[&[view], index, &[expected, new], mask.as_slice()].concat(), t, attrs)
    }

    // ---- matrix products ----

    /// a·b + acc.
    #[track_caller]
    pub fn dot(&mut self, a: Value, b: Value, acc: Value) -> Value {
        let t = self.tile(acc);
        self.op(OpKind::Dot, &[a, b, acc], t)
    }
    /// A rectangle of a packed matrix at an i64 position.
    #[track_caller]
    pub fn packed_load(&mut self, matrix: Value, at: [Value; 2], k: usize, n: usize) -> Value {
        let Type::Packed(p) = self.b.ty(matrix) else { panic!("expected a packed matrix") };
        let t = Type::QTile(QTileType { quant: p.quant, k, n });
        self.b.op1(OpKind::PackedLoad, &[matrix, at[0], at[1]], t, Attrs::new(), Location::caller().into())
    }

    // ---- control flow ----

    /// Counts from lo while below hi; `f(index, carried)` gives the next carried values.
    #[track_caller]
    pub fn for_loop(
        &mut self,
        [lo, hi, step]: [Value; 3],
        init: &[Value],
        f: impl FnOnce(&mut K, Value, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let loc: Loc = Location::caller().into();
        let types = self.types(init);
        let args = self.b.open(&[vec![self.b.ty(lo).clone()], types.clone()].concat());
        let next = f(self, args[0], &args[1..]);
        let body = self.b.close(next);
        self.b.op(OpKind::For, &[&[lo, hi, step], init].concat(), &types, Attrs::new(), vec![body], loc)
    }
    /// Loops while `cond(carried)`.
    #[track_caller]
    pub fn while_loop(
        &mut self,
        init: &[Value],
        cond: impl FnOnce(&mut K, &[Value]) -> Value,
        body: impl FnOnce(&mut K, &[Value]) -> Vec<Value>,
    ) -> Vec<Value> {
        let loc: Loc = Location::caller().into();
        let types = self.types(init);
        let args = self.b.open(&types);
        let go = cond(self, &args);
        let cond = self.b.close(vec![go]);
        let args = self.b.open(&types);
        let next = body(self, &args);
        let body = self.b.close(next);
        self.b.op(OpKind::While, init, &types, Attrs::new(), vec![cond, body], loc)
    }
    /// Runs one of two branches.
    #[track_caller]
    pub fn if_else(
        &mut self,
        cond: Value,
        then: impl FnOnce(&mut K) -> Vec<Value>,
        other: impl FnOnce(&mut K) -> Vec<Value>,
    ) -> Vec<Value> {
        let loc: Loc = Location::caller().into();
        self.b.open(&[]);
        let yields = then(self);
        let types = self.types(&yields);
        let then = self.b.close(yields);
        self.b.open(&[]);
        let yields = other(self);
        let other = self.b.close(yields);
        self.b.op(OpKind::If, &[cond], &types, Attrs::new(), vec![then, other], loc)
    }
    fn types(&self, v: &[Value]) -> Vec<Type> {
        v.iter().map(|&v| self.b.ty(v).clone()).collect()
    }
}

fn axis_attr(axis: usize) -> Attrs {
    Attrs::new().with(Key::Axis, Attr::Int(axis as i64))
}
fn masked(attrs: Attrs, mask: Option<Value>) -> Attrs {
    if mask.is_some() { attrs.with(Key::Masked, Attr::Flag) } else { attrs }
}
