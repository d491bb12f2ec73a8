//! Packed operands: quantised or pre-arranged weight matrices of K rows (the contracted axis) and N columns. Their
//! *meaning* is that of the GGUF format of the same name; their layout in memory is the target's, and does not show.

use crate::context::{self, Handle};
use crate::dim::Dim;
use crate::flow::{Span, range};
use crate::position::{Index, Indices, TileAt};
use crate::program::cdiv;
use crate::shape::Shape;
use crate::tile::{Scalar, Tile};
use std::marker::PhantomData;
use tegula_ir::{Attr, Attrs, Elem as IrElem, Key, OpKind, QTileType, Quant, Type};

/// A format of packed weights as a type, or [`AnyQuant`].
pub trait Format: Copy + 'static {
    /// The format, if the type names one.
    const QUANT: Option<Quant>;
}

/// Any format: the argument's. One Rust instance of a kernel then serves them all.
#[derive(Clone, Copy, Debug)]
pub struct AnyQuant;
impl Format for AnyQuant {
    const QUANT: Option<Quant> = None;
}

macro_rules! formats { ($($name:ident)*) => {$(
    #[doc = concat!("The format of the same name as [`Quant::", stringify!($name), "`].")]
    #[allow(non_camel_case_types)]
    #[derive(Clone, Copy, Debug)]
    pub struct $name;
    impl Format for $name {
        const QUANT: Option<Quant> = Some(Quant::$name);
    }
)*} }
/// The formats as types.
pub mod formats {
    use super::{Format, Quant};
    formats! { F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K }
}

/// A packed matrix of K rows and N columns.
pub struct Packed<Q = AnyQuant> {
    handle: Handle,
    marker: PhantomData<(Q, *const ())>,
}
impl<Q> Clone for Packed<Q> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Q> Copy for Packed<Q> {}

/// A rectangle of a packed matrix, shape `S = (BK, BN)`: codes, scales and minima.
pub struct QTile<Q, S> {
    handle: Handle,
    marker: PhantomData<(Q, S, *const ())>,
}
impl<Q, S> Clone for QTile<Q, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Q, S> Copy for QTile<Q, S> {}

impl<Q: Format> Packed<Q> {
    pub(crate) fn new(handle: Handle) -> Self {
        Packed { handle, marker: PhantomData }
    }

    /// The format, a build-time value.
    #[track_caller]
    pub fn quant(self) -> Quant {
        match context::ty(self.handle) {
            Type::Packed(p) => p.quant,
            // A value of another build: noted where it is used.
            _ => Q::QUANT.unwrap_or(Quant::F32),
        }
    }

    /// K, the number of rows.
    #[track_caller]
    pub fn k(self) -> Scalar<i32> {
        self.dim(0)
    }

    /// N, the number of columns.
    #[track_caller]
    pub fn n(self) -> Scalar<i32> {
        self.dim(1)
    }

    #[track_caller]
    fn dim(self, axis: i64) -> Scalar<i32> {
        Tile::new(context::emit(
            OpKind::PackedDim,
            &[self.handle],
            Type::scalar(IrElem::I32),
            Attrs::new().with(Key::Axis, Attr::Int(axis)),
        ))
    }

    /// The tile positions that cover the K rows by rectangles of `D` rows.
    #[track_caller]
    pub fn tiles_along_k<D: Dim>(self) -> Span<Scalar<i32>> {
        let n = cdiv(self.k(), D::extent());
        range(0, n)
    }

    /// The rectangle at a tile position `(k, n)`. Outside the matrix it is 0. The number of its rows must be a multiple
    /// of the format's block.
    #[track_caller]
    pub fn load<S: Rectangle>(self, position: impl TileAt<2>) -> QTile<Q, S> {
        let shape = S::extents();
        let quant = self.quant();
        if shape[0] % quant.block() != 0 {
            context::fault(format!(
                "a rectangle of {} rows of a packed `{quant}`: the rows must be a multiple of its block of {}",
                shape[0],
                quant.block()
            ));
        }
        let at = position.offsets(&shape);
        let ty = Type::QTile(QTileType { quant, k: shape[0], n: shape[1] });
        QTile {
            handle: context::emit(OpKind::PackedLoad, &[vec![self.handle], at].concat(), ty, Attrs::new()),
            marker: PhantomData,
        }
    }

    /// Dequantised elements at index tiles `(k, n)`. Outside the matrix they are 0.
    #[track_caller]
    pub fn gather<I: Indices<2>>(self, indices: I) -> Tile<f32, I::Shape> {
        let indices = indices.tiles();
        let shape = context::shape(indices[0]);
        Tile::new(context::emit(
            OpKind::PackedGather,
            &[vec![self.handle], indices].concat(),
            Type::tile(IrElem::F32, shape),
            Attrs::new(),
        ))
    }

    /// Column `n`, elements `k .. k + D` of it, dequantised: a row of an embedding table.
    #[track_caller]
    pub fn column<D: Dim>(self, k: impl Index<Shape = ()>, n: impl Index<Shape = ()>) -> Tile<f32, (D,)> {
        let start: Scalar<i64> = Tile::new(k.to_i64());
        let rows = crate::tile::iota_of::<i64, D>() + start;
        let column: Scalar<i64> = Tile::new(n.to_i64());
        self.gather((rows, column))
    }
}

/// A shape of two axes.
#[diagnostic::on_unimplemented(
    message = "a packed matrix is loaded in rectangles, shape `(BK, BN)`, found shape `{Self}`"
)]
pub trait Rectangle: Shape {
    /// Rows.
    type Rows: Dim;
    /// Columns.
    type Columns: Dim;
}
impl<A: Dim, B: Dim> Rectangle for (A, B) {
    type Rows = A;
    type Columns = B;
}

impl<Q, S: Rectangle> QTile<Q, S> {
    pub(crate) fn handle(self) -> Handle {
        self.handle
    }

    /// The values as f32.
    #[track_caller]
    pub fn dequant(self) -> Tile<f32, S> {
        Tile::new(context::emit(OpKind::Dequant, &[self.handle], Type::tile(IrElem::F32, S::extents()), Attrs::new()))
    }
}
