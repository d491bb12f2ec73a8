//! Views: strided arrays in memory, passed to a kernel. Loads past an edge give a pad value (0 unless one is named) and
//! touch no memory; stores past an edge are dropped.

use crate::context::{self, Handle};
use crate::dim::Dim;
use crate::elem::{AtomicNum, Elem, Float, Int, int_constant};
use crate::flow::Span;
use crate::position::{At, Index, Indices, TileAt, operand_to};
use crate::program::cdiv;
use crate::shape::{FitsWith, OfRank};
use crate::tile::{Operand, Scalar, Tile, broadcast_to};
use std::marker::PhantomData;
use tegula_ir::{AtomicKind, Attr, Attrs, Elem as IrElem, Key, OpKind, Scalar as Bits, Type, ViewFacts, ViewType};

pub use tegula_ir::MemOrder;

/// A tensor that a kernel reads: elements `T`, `R` axes. The host passes `&Tensor<T>`.
pub struct View<T, const R: usize> {
    handle: Handle,
    marker: PhantomData<(T, *const ())>,
}

/// A tensor that a kernel reads and writes: elements `T`, `R` axes. The host passes `&mut Tensor<T>`.
pub struct ViewMut<T, const R: usize> {
    handle: Handle,
    marker: PhantomData<(T, *const ())>,
}

/// What [`View`] and [`ViewMut`] share, for helpers that take either.
pub trait AnyView<const R: usize>: Copy {
    /// The extent of an axis.
    #[track_caller]
    fn extent(self, axis: usize) -> Scalar<i32>;
}

macro_rules! views { ($($view:ident)*) => {$(
    impl<T, const R: usize> Clone for $view<T, R> {
        fn clone(&self) -> Self { *self }
    }
    impl<T, const R: usize> Copy for $view<T, R> {}

    impl<T: Elem, const R: usize> AnyView<R> for $view<T, R> {
        fn extent(self, axis: usize) -> Scalar<i32> { dim(self.handle, R, axis) }
    }

    impl<T: Elem, const R: usize> $view<T, R> {
        pub(crate) fn new(handle: Handle) -> Self { $view { handle, marker: PhantomData } }

        /// The extent of axis `AX`, in elements.
        #[track_caller]
        pub fn dim<const AX: usize>(self) -> Scalar<i32> { dim(self.handle, R, AX) }

        /// How many tiles of extent `D` cover axis `AX`.
        #[track_caller]
        pub fn tile_count<const AX: usize, D: Dim>(self) -> Scalar<i32> { cdiv(dim(self.handle, R, AX), D::extent()) }

        /// The tile positions that cover axis `AX` by tiles of extent `D`: `for k in a.tiles_along::<1, BK>()`.
        #[track_caller]
        pub fn tiles_along<const AX: usize, D: Dim>(self) -> Span<Scalar<i32>> {
            let n = self.tile_count::<AX, D>();
            crate::flow::range(0, n)
        }

        /// The tile at a tile position: element `position · extents` of the view is its first. Past the edge it is 0.
        #[track_caller]
        pub fn load<S: OfRank<R>>(self, position: impl TileAt<R>) -> Tile<T, S> {
            let shape = S::extents();
            let at = position.offsets(&shape);
            Tile::new(load(self.handle, at, T::ELEM, &shape, None))
        }

        /// As [`Self::load`]; past the edge it is `pad`, a compile-time value.
        #[track_caller]
        pub fn load_padded<S: OfRank<R>>(self, position: impl TileAt<R>, pad: impl PadValue<T>) -> Tile<T, S> {
            let shape = S::extents();
            let at = position.offsets(&shape);
            Tile::new(load(self.handle, at, T::ELEM, &shape, Some(pad.pad())))
        }

        /// The tile whose first element is the view's element at `position`. Past the edge it is 0.
        #[track_caller]
        pub fn load_at<S: OfRank<R>>(self, position: impl At<R>) -> Tile<T, S> {
            let at = position.elements();
            Tile::new(load(self.handle, at, T::ELEM, &S::extents(), None))
        }

        /// As [`Self::load_at`]; past the edge it is `pad`, a compile-time value.
        #[track_caller]
        pub fn load_at_padded<S: OfRank<R>>(self, position: impl At<R>, pad: impl PadValue<T>) -> Tile<T, S> {
            let at = position.elements();
            Tile::new(load(self.handle, at, T::ELEM, &S::extents(), Some(pad.pad())))
        }

        /// One element. Outside the view it is 0.
        #[track_caller]
        pub fn at(self, position: impl At<R>) -> Scalar<T> {
            let at = position.elements();
            let one = load(self.handle, at, T::ELEM, &[1; R], None);
            Tile::new(context::emit(OpKind::Reshape, &[one], Type::scalar(T::ELEM), Attrs::new()))
        }

        /// The elements at index tiles, one per axis, whose shapes fit together: `table.gather((ids.expand::<1>(),
        /// cols.expand::<0>()))`. Outside the view they are 0.
        #[track_caller]
        pub fn gather<I: Indices<R>>(self, indices: I) -> Tile<T, I::Shape> {
            let indices = indices.tiles();
            Tile::new(gather(self.handle, indices, T::ELEM, None, None))
        }

        /// As [`Self::gather`]; outside the view they are `pad`, a compile-time value.
        #[track_caller]
        pub fn gather_padded<I: Indices<R>>(self, indices: I, pad: impl PadValue<T>) -> Tile<T, I::Shape> {
            let indices = indices.tiles();
            Tile::new(gather(self.handle, indices, T::ELEM, None, Some(pad.pad())))
        }

        /// As [`Self::gather`]; where `mask` is false nothing is read, and the element is 0.
        #[track_caller]
        pub fn gather_masked<I: Indices<R>, M: Operand<bool>>(self, indices: I, mask: M) -> Tile<T, I::Shape>
        where
            I::Shape: FitsWith<M::Shape, Together = I::Shape>,
        {
            let indices = indices.tiles();
            let mask = operand_to(mask, &context::shape(indices[0]));
            Tile::new(gather(self.handle, indices, T::ELEM, Some(mask), None))
        }

        /// The part from element `start` with at most `len` elements along axis `AX`: loads past its end give the pad
        /// value, stores past it are dropped. This is how ragged rows are kept apart.
        #[track_caller]
        pub fn narrow<const AX: usize>(self, start: impl Index<Shape = ()>, len: impl Index<Shape = ()>) -> Self {
            let (start, len) = (start.to_i64(), len.to_i64());
            Self::new(narrow(self.handle, R, AX, start, len))
        }
    }
)*} }
views! { View ViewMut }

/// What a load past the edge gives: a compile-time number that fits `T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the pad value of a view of `{T}`",
    label = "expected a compile-time number that fits `{T}`",
    note = "for another value load without a pad and use `select`"
)]
pub trait PadValue<T: Elem> {
    #[doc(hidden)]
    #[track_caller]
    fn pad(self) -> Bits;
}
macro_rules! pads { ($($bound:ident: $($t:ty)*, |$v:ident, $e:ident| $make:expr;)*) => {$($(
    impl<T: $bound> PadValue<T> for $t {
        fn pad(self) -> Bits { let ($v, $e) = (self, T::ELEM); $make }
    }
)*)*} }
pads! {
    Float: f32 f64, |v, e| Bits::from_f64(e, v as f64);
    Int: i8 i16 i32 i64 u8 u16 u32 u64 usize, |v, e| match int_constant(e, v as i128) {
        Ok(b) => b,
        Err(message) => { context::fault(message); Bits::zero(e) }
    };
}
impl PadValue<bool> for bool {
    fn pad(self) -> Bits {
        Bits::bool(self)
    }
}

impl<T: Elem> ViewMut<T, 2> {
    /// How many tiles of `A` × `B` cover it.
    #[track_caller]
    pub fn tiles<A: Dim, B: Dim>(self) -> (Scalar<i32>, Scalar<i32>) {
        (self.tile_count::<0, A>(), self.tile_count::<1, B>())
    }
}
impl<T: Elem> View<T, 2> {
    /// How many tiles of `A` × `B` cover it.
    #[track_caller]
    pub fn tiles<A: Dim, B: Dim>(self) -> (Scalar<i32>, Scalar<i32>) {
        (self.tile_count::<0, A>(), self.tile_count::<1, B>())
    }
}

impl<T: Elem, const R: usize> ViewMut<T, R> {
    /// Stores a tile at a tile position. What lies past the edge is dropped.
    #[track_caller]
    pub fn store<S: OfRank<R>>(self, position: impl TileAt<R>, tile: Tile<T, S>) {
        let at = position.offsets(&S::extents());
        store(self.handle, at, tile.handle());
    }

    /// Stores a tile whose first element goes to the view's element at `position`. What lies past the edge is dropped.
    #[track_caller]
    pub fn store_at<S: OfRank<R>>(self, position: impl At<R>, tile: Tile<T, S>) {
        let at = position.elements();
        store(self.handle, at, tile.handle());
    }

    /// Stores one element. Outside the view it is dropped.
    #[track_caller]
    pub fn set(self, position: impl At<R>, value: impl Operand<T, Shape = ()>) {
        let at = position.elements();
        let one = operand_to(value, &[1; R]);
        store(self.handle, at, one);
    }

    /// Stores elements at index tiles. What lies outside the view is dropped; of several lanes that name one element the
    /// last in row-major order stays.
    #[track_caller]
    pub fn scatter<I: Indices<R>, V: Operand<T>>(self, indices: I, values: V)
    where
        I::Shape: FitsWith<V::Shape, Together = I::Shape>,
    {
        let indices = indices.tiles();
        let values = operand_to(values, &context::shape(indices[0]));
        context::emit_effect(OpKind::Scatter, &[vec![self.handle], indices, vec![values]].concat(), Attrs::new());
    }

    /// As [`Self::scatter`], only where `mask` is true.
    #[track_caller]
    pub fn scatter_masked<I: Indices<R>, V: Operand<T>, M: Operand<bool>>(self, indices: I, values: V, mask: M)
    where
        I::Shape: FitsWith<V::Shape, Together = I::Shape> + FitsWith<M::Shape, Together = I::Shape>,
    {
        let indices = indices.tiles();
        let shape = context::shape(indices[0]);
        let (values, mask) = (operand_to(values, &shape), operand_to(mask, &shape));
        let operands = [vec![self.handle], indices, vec![values, mask]].concat();
        context::emit_effect(OpKind::Scatter, &operands, Attrs::new().with(Key::Masked, Attr::Flag));
    }

    #[track_caller]
    fn atomic<I: Indices<R>, V: Operand<T>>(
        self,
        kind: AtomicKind,
        indices: I,
        values: V,
        mask: Option<Handle>,
        order: MemOrder,
    ) -> Tile<T, I::Shape> {
        let indices = indices.tiles();
        let shape = context::shape(indices[0]);
        let values = operand_to(values, &shape);
        let mut operands = [vec![self.handle], indices, vec![values]].concat();
        let mut attrs = Attrs::new().with(Key::Kind, kind.into()).with(Key::Order, order.into());
        if let Some(m) = mask {
            operands.push(broadcast_to(m, &shape));
            attrs.set(Key::Masked, Attr::Flag);
        }
        Tile::new(context::emit(OpKind::Atomic, &operands, Type::tile(T::ELEM, shape), attrs))
    }
}

macro_rules! atomics { ($bound:path: $($(#[$doc:meta])* $m:ident $masked:ident $kind:ident;)*) => {
    // The bound is the method's, so that rustc says which types there are.
    impl<T: Elem, const R: usize> ViewMut<T, R> {$(
        $(#[$doc])*
        /// Lane by lane in any order; gives the old values, 0 for lanes outside the view.
        #[track_caller]
        pub fn $m<I: Indices<R>, V: Operand<T>>(self, indices: I, values: V, order: MemOrder) -> Tile<T, I::Shape>
        where
            T: $bound,
            I::Shape: FitsWith<V::Shape, Together = I::Shape>,
        {
            self.atomic(AtomicKind::$kind, indices, values, None, order)
        }
        $(#[$doc])*
        /// Only where `mask` is true; lane by lane in any order; gives the old values, 0 for lanes outside the view or
        /// masked off.
        #[track_caller]
        pub fn $masked<I: Indices<R>, V: Operand<T>, M: Operand<bool>>(self, indices: I, values: V, mask: M, order: MemOrder) -> Tile<T, I::Shape>
        where
            T: $bound,
            I::Shape: FitsWith<V::Shape, Together = I::Shape> + FitsWith<M::Shape, Together = I::Shape>,
        {
            let mask = mask.to_handle();
            self.atomic(AtomicKind::$kind, indices, values, Some(mask), order)
        }
    )*}
} }
atomics! { AtomicNum:
    /// Atomically adds to the elements at the index tiles. Numbers of 16 bits and more.
    atomic_add atomic_add_masked Add;
    /// Atomically puts the larger into the elements at the index tiles; a NaN is ignored.
    atomic_max atomic_max_masked Max;
    /// Atomically puts the smaller into the elements at the index tiles; a NaN is ignored.
    atomic_min atomic_min_masked Min;
}
atomics! { Int:
    /// Atomic bitwise and.
    atomic_and atomic_and_masked And;
    /// Atomic bitwise or.
    atomic_or atomic_or_masked Or;
    /// Atomic bitwise exclusive or.
    atomic_xor atomic_xor_masked Xor;
}
atomics! { Elem:
    /// Atomically puts in the values.
    atomic_xchg atomic_xchg_masked Xchg;
}

impl<T: Int, const R: usize> ViewMut<T, R> {
    /// Atomically stores `new` where the element equals `expected`; gives the old values.
    #[track_caller]
    pub fn atomic_cas<I: Indices<R>, E: Operand<T>, V: Operand<T>>(
        self,
        indices: I,
        expected: E,
        new: V,
        order: MemOrder,
    ) -> Tile<T, I::Shape>
    where
        I::Shape: FitsWith<E::Shape, Together = I::Shape> + FitsWith<V::Shape, Together = I::Shape>,
    {
        let indices = indices.tiles();
        let shape = context::shape(indices[0]);
        let (expected, new) = (operand_to(expected, &shape), operand_to(new, &shape));
        let operands = [vec![self.handle], indices, vec![expected, new]].concat();
        Tile::new(context::emit(
            OpKind::AtomicCas,
            &operands,
            Type::tile(T::ELEM, shape),
            Attrs::new().with(Key::Order, order.into()),
        ))
    }
}

#[track_caller]
fn dim(view: Handle, rank: usize, axis: usize) -> Scalar<i32> {
    if axis >= rank {
        context::fault(format!("axis {axis} of a view of rank {rank}: its axes are 0 to {}", rank.saturating_sub(1)));
        return Tile::new(context::stand_in(Type::scalar(IrElem::I32)));
    }
    Tile::new(context::emit(
        OpKind::Dim,
        &[view],
        Type::scalar(IrElem::I32),
        Attrs::new().with(Key::Axis, Attr::Int(axis as i64)),
    ))
}

#[track_caller]
fn load(view: Handle, at: Vec<Handle>, elem: IrElem, shape: &[usize], pad: Option<Bits>) -> Handle {
    context::emit(OpKind::Load, &[vec![view], at].concat(), Type::tile(elem, shape), padding(pad))
}

#[track_caller]
fn gather(view: Handle, indices: Vec<Handle>, elem: IrElem, mask: Option<Handle>, pad: Option<Bits>) -> Handle {
    let shape = context::shape(indices[0]);
    let mut attrs = padding(pad);
    if mask.is_some() {
        attrs.set(Key::Masked, Attr::Flag);
    }
    let operands: Vec<Handle> = std::iter::once(view).chain(indices).chain(mask).collect();
    context::emit(OpKind::Gather, &operands, Type::tile(elem, shape), attrs)
}

fn padding(pad: Option<Bits>) -> Attrs {
    pad.map_or(Attrs::new(), |p| Attrs::new().with(Key::Pad, Attr::Scalar(p)))
}

#[track_caller]
fn store(view: Handle, at: Vec<Handle>, tile: Handle) {
    context::emit_effect(OpKind::Store, &[vec![view], at, vec![tile]].concat(), Attrs::new())
}

#[track_caller]
fn narrow(view: Handle, rank: usize, axis: usize, start: Handle, len: Handle) -> Handle {
    let Type::View(v) = context::ty(view) else { return view };
    if axis >= rank {
        context::fault(format!("axis {axis} of a view of rank {rank}: its axes are 0 to {}", rank.saturating_sub(1)));
        return view;
    }
    // A new start along the innermost axis may leave the 16-byte grid; along the others it moves by an aligned stride.
    let facts = ViewFacts { align16: v.facts.align16 && axis + 1 != rank, ..v.facts };
    let ty = Type::View(ViewType { facts, ..v });
    context::emit(OpKind::Narrow, &[view, start, len], ty, Attrs::new().with(Key::Axis, Attr::Int(axis as i64)))
}
