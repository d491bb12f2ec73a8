//! Positions in views and indices into them.
//!
//! A *tile position* counts tiles: `i32` scalars or compile-time integers; it is widened to `i64` before it is multiplied
//! by the tile's extent. An *element position* counts elements: `i32` or `i64`. Index tiles are `i32` or `i64` too.

use crate::context::{self, Handle};
use crate::elem::{Elem, Int};
use crate::shape::{Fit, FitsWith, Shape};
use crate::tile::{Operand, Tile, broadcast_to, fit, int_handle};
use tegula_ir::Elem as IrElem;

/// An integer that may index: `i32` or `i64`.
#[diagnostic::on_unimplemented(
    message = "elements are indexed by `i32` or `i64`, found `{Self}`",
    note = "convert first: `x.cast::<i64>()`"
)]
pub trait IndexElem: Int {}
impl IndexElem for i32 {}
impl IndexElem for i64 {}

/// An index along one axis: a tile or scalar of `i32` or `i64`, or a compile-time integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index elements",
    label = "expected a scalar or tile of `i32` or `i64`, or a compile-time integer",
    note = "an index is one of these per axis: `(i, 0)`; convert others first: `x.cast::<i64>()`"
)]
pub trait Index: Copy {
    /// Its shape.
    type Shape: Shape;
    #[doc(hidden)]
    #[track_caller]
    fn to_i64(self) -> Handle;
}

impl<T: IndexElem, S: Shape> Index for Tile<T, S> {
    type Shape = S;
    fn to_i64(self) -> Handle {
        self.cast::<i64>().handle()
    }
}
macro_rules! host { ($($t:ty)*) => {$(
    impl Index for $t {
        type Shape = ();
        fn to_i64(self) -> Handle { int_handle(IrElem::I64, self as i128) }
    }
    impl TileIndex for $t {
        fn scaled(self, extent: usize) -> Handle { int_handle(IrElem::I64, (self as i128).saturating_mul(extent as i128)) }
    }
)*} }
host! { i32 i64 usize u32 }

/// A tile count along one axis: a scalar `i32`, or a compile-time integer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile position",
    label = "expected a `Scalar<i32>` or a compile-time integer",
    note = "a tile position counts tiles as `i32`, one per axis: `(i, 0)`; element positions of type `i64` go to `load_at` and `store_at`"
)]
pub trait TileIndex: Copy {
    #[doc(hidden)]
    #[track_caller]
    fn scaled(self, extent: usize) -> Handle;
}
impl<T: TileCount> TileIndex for Tile<T, ()> {
    fn scaled(self, extent: usize) -> Handle {
        let wide = self.cast::<i64>();
        if extent == 1 { wide.handle() } else { (wide * extent).handle() }
    }
}

/// The element type of tile positions, `i32`. A trait with one implementation lets rustc infer it.
#[diagnostic::on_unimplemented(
    message = "tile positions are `i32`, found `{Self}`",
    note = "element positions of type `i64` go to `load_at` and `store_at`"
)]
pub trait TileCount: Int {}
impl TileCount for i32 {}

/// A tile position in a view of rank `R`: one index per axis. For rank 1 also the index alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile position in a view of rank {R}",
    label = "expected {R} `Scalar<i32>`s or compile-time integers",
    note = "a position has one index per axis: `(i, 0)`, for rank 1 `(i,)` or `i`"
)]
pub trait TileAt<const R: usize> {
    #[doc(hidden)]
    #[track_caller]
    fn offsets(self, extents: &[usize]) -> Vec<Handle>;
}

/// An element position in a view of rank `R`: one index per axis. For rank 1 also the index alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element position in a view of rank {R}",
    label = "expected {R} scalars of `i32` or `i64`, or compile-time integers",
    note = "a position has one index per axis: `(i, 0)`, for rank 1 `(i,)` or `i`"
)]
pub trait At<const R: usize> {
    #[doc(hidden)]
    #[track_caller]
    fn elements(self) -> Vec<Handle>;
}

/// Index tiles for a view of rank `R`: one per axis, whose shapes fit together.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not index a view of rank {R}",
    label = "expected {R} index tiles",
    note = "there is one index per axis, `(rows, cols)`, for rank 1 `(i,)` or `i`: tiles or scalars of `i32` or `i64`, or compile-time integers, whose shapes fit together"
)]
pub trait Indices<const R: usize> {
    /// The shape of what is indexed.
    type Shape: Shape;
    #[doc(hidden)]
    #[track_caller]
    fn tiles(self) -> Vec<Handle>;
}

macro_rules! tuples { ($($r:literal: $($a:ident $i:tt),+;)*) => {$(
    impl<$($a: TileIndex),+> TileAt<$r> for ($($a,)+) {
        fn offsets(self, extents: &[usize]) -> Vec<Handle> { vec![$(self.$i.scaled(extents[$i])),+] }
    }
    impl<$($a: Index<Shape = ()>),+> At<$r> for ($($a,)+) {
        fn elements(self) -> Vec<Handle> { vec![$(self.$i.to_i64()),+] }
    }
)*} }
tuples! { 1: A 0; 2: A 0, B 1; 3: A 0, B 1, D 2; 4: A 0, B 1, D 2, E 3; }

macro_rules! alone { ($($t:ty)*) => {$(
    impl TileAt<1> for $t {
        fn offsets(self, extents: &[usize]) -> Vec<Handle> { vec![self.scaled(extents[0])] }
    }
    impl At<1> for $t {
        fn elements(self) -> Vec<Handle> { vec![self.to_i64()] }
    }
    impl Indices<1> for $t {
        type Shape = ();
        fn tiles(self) -> Vec<Handle> { vec![self.to_i64()] }
    }
)*} }
alone! { i32 i64 usize u32 }

impl<T: TileCount> TileAt<1> for Tile<T, ()> {
    fn offsets(self, extents: &[usize]) -> Vec<Handle> {
        vec![self.scaled(extents[0])]
    }
}
impl<T: IndexElem> At<1> for Tile<T, ()> {
    fn elements(self) -> Vec<Handle> {
        vec![self.to_i64()]
    }
}
impl<T: IndexElem, S: Shape> Indices<1> for Tile<T, S> {
    type Shape = S;
    fn tiles(self) -> Vec<Handle> {
        vec![self.to_i64()]
    }
}

impl<A: Index> Indices<1> for (A,) {
    type Shape = A::Shape;
    fn tiles(self) -> Vec<Handle> {
        vec![self.0.to_i64()]
    }
}
impl<A: Index, B: Index> Indices<2> for (A, B)
where
    A::Shape: FitsWith<B::Shape>,
{
    type Shape = Fit<A::Shape, B::Shape>;
    fn tiles(self) -> Vec<Handle> {
        together(vec![self.0.to_i64(), self.1.to_i64()])
    }
}
impl<A: Index, B: Index, D: Index> Indices<3> for (A, B, D)
where
    A::Shape: FitsWith<B::Shape>,
    Fit<A::Shape, B::Shape>: FitsWith<D::Shape>,
{
    type Shape = Fit<Fit<A::Shape, B::Shape>, D::Shape>;
    fn tiles(self) -> Vec<Handle> {
        together(vec![self.0.to_i64(), self.1.to_i64(), self.2.to_i64()])
    }
}
impl<A: Index, B: Index, D: Index, E: Index> Indices<4> for (A, B, D, E)
where
    A::Shape: FitsWith<B::Shape>,
    Fit<A::Shape, B::Shape>: FitsWith<D::Shape>,
    Fit<Fit<A::Shape, B::Shape>, D::Shape>: FitsWith<E::Shape>,
{
    type Shape = Fit<Fit<Fit<A::Shape, B::Shape>, D::Shape>, E::Shape>;
    fn tiles(self) -> Vec<Handle> {
        together(vec![self.0.to_i64(), self.1.to_i64(), self.2.to_i64(), self.3.to_i64()])
    }
}

/// Repeats index tiles to their common shape.
#[track_caller]
fn together(tiles: Vec<Handle>) -> Vec<Handle> {
    let mut shape = vec![];
    for &t in &tiles {
        shape = fit(&shape, &context::shape(t));
    }
    let mut out = vec![];
    for t in tiles {
        out.push(broadcast_to(t, &shape));
    }
    out
}

/// An operand repeated to a shape.
#[track_caller]
pub(crate) fn operand_to<T: Elem>(v: impl Operand<T>, shape: &[usize]) -> Handle {
    let h = v.to_handle();
    broadcast_to(h, shape)
}
