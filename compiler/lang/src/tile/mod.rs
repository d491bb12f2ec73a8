//! Tiles: arrays of run-time values whose shape is a type. A [`Scalar`] is a tile without axes.

mod arith;
mod create;
mod math;
mod moving;
mod order;
mod reduce;
mod scan;

pub use create::{constant, full, highest, iota, iota_of, lowest, scalar, zeros};
pub use moving::select;
pub use reduce::Pair;

use crate::context::{self, Handle};
use crate::elem::{Elem, Float, Int, int_constant};
use crate::shape::{Fit, FitsWith, Shape};
use half::{bf16, f16};
use std::fmt;
use std::marker::PhantomData;
use tegula_ir::{Attrs, Elem as IrElem, OpKind, Scalar as Bits, Type};

/// A tile of elements `T` and shape `S`: a run-time value of the kernel being built. `(BM, BN)` is a matrix, `(BN,)` a
/// vector, `()` a scalar.
pub struct Tile<T, S> {
    handle: Handle,
    // Tied to the thread that builds the kernel.
    marker: PhantomData<(T, S, *const ())>,
}

/// A run-time number: a tile without axes.
pub type Scalar<T> = Tile<T, ()>;

impl<T, S> Clone for Tile<T, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, S> Copy for Tile<T, S> {}

impl<T: Elem, S> fmt::Debug for Tile<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile of {}", T::ELEM)
    }
}

impl<T, S> Tile<T, S> {
    pub(crate) fn new(handle: Handle) -> Self {
        Tile { handle, marker: PhantomData }
    }
    pub(crate) fn handle(self) -> Handle {
        self.handle
    }
}

/// What may stand beside a tile of `T` in an operation: a tile or scalar of `T`, or a compile-time number that fits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an operand beside a tile of `{T}`",
    label = "expected a tile or scalar of `{T}`, or a compile-time number that fits `{T}`",
    note = "write `x.cast::<{T}>()` to convert a tile; a float tile takes `2.0`, an integer tile takes `2`"
)]
pub trait Operand<T: Elem>: Copy {
    /// Its shape.
    type Shape: Shape;
    #[doc(hidden)]
    #[track_caller]
    fn to_handle(self) -> Handle;
}

impl<T: Elem, S: Shape> Operand<T> for Tile<T, S> {
    type Shape = S;
    fn to_handle(self) -> Handle {
        self.handle
    }
}

macro_rules! host_floats { ($($t:ty)*) => {$(
    impl<T: Float> Operand<T> for $t {
        type Shape = ();
        fn to_handle(self) -> Handle { context::constant(Bits::from_f64(T::ELEM, self as f64), &[]) }
    }
)*} }
host_floats! { f32 f64 }

macro_rules! host_ints { ($($t:ty)*) => {$(
    impl<T: Int> Operand<T> for $t {
        type Shape = ();
        fn to_handle(self) -> Handle { int_handle(T::ELEM, self as i128) }
    }
)*} }
host_ints! { i8 i16 i32 i64 u8 u16 u32 u64 usize }

macro_rules! host_exact { ($($t:ty)*) => {$(
    impl Operand<$t> for $t {
        type Shape = ();
        fn to_handle(self) -> Handle { context::constant(Bits::from_bits(<$t>::ELEM, self.bits()), &[]) }
    }
)*} }
host_exact! { bool f16 bf16 crate::float8::f8e4m3 crate::float8::f8e5m2 }

/// A constant integer scalar.
#[track_caller]
pub(crate) fn int_handle(elem: IrElem, v: i128) -> Handle {
    match int_constant(elem, v) {
        Ok(bits) => context::constant(bits, &[]),
        Err(message) => {
            context::fault(message);
            context::constant(Bits::zero(elem), &[])
        }
    }
}

/// Repeats a tile to a shape that its own fits.
#[track_caller]
pub(crate) fn broadcast_to(v: Handle, shape: &[usize]) -> Handle {
    match context::ty(v).as_tile() {
        Some(t) if t.shape != shape => context::emit(OpKind::Broadcast, &[v], Type::tile(t.elem, shape), Attrs::new()),
        _ => v,
    }
}

/// The extents of two tiles that fit together by their types.
pub(crate) fn fit(a: &[usize], b: &[usize]) -> Vec<usize> {
    if a.is_empty() || b.is_empty() {
        return [a, b].concat();
    }
    a.iter().zip(b).map(|(&x, &y)| if x == 1 { y } else { x }).collect()
}

/// An elementwise op on two operands, repeated to a common shape.
#[track_caller]
pub(crate) fn binary<T: Elem, S>(kind: OpKind, a: Handle, b: Handle) -> Tile<T, S> {
    let shape = fit(&context::shape(a), &context::shape(b));
    let (a, b) = (broadcast_to(a, &shape), broadcast_to(b, &shape));
    Tile::new(context::emit(kind, &[a, b], Type::tile(T::ELEM, shape), Attrs::new()))
}

impl<T: Elem, S: Shape> Tile<T, S> {
    /// An elementwise op that keeps the type.
    #[track_caller]
    pub(crate) fn unary(self, kind: OpKind) -> Self {
        self.derive(kind, T::ELEM, context::shape(self.handle), Attrs::new())
    }

    /// An op on this tile alone.
    #[track_caller]
    pub(crate) fn derive<U: Elem, R>(self, kind: OpKind, elem: IrElem, shape: Vec<usize>, attrs: Attrs) -> Tile<U, R> {
        debug_assert_eq!(elem, U::ELEM);
        Tile::new(context::emit(kind, &[self.handle], Type::tile(elem, shape), attrs))
    }

    /// An elementwise op with another operand.
    #[track_caller]
    pub(crate) fn with<R: Operand<T>>(self, kind: OpKind, r: R) -> Tile<T, Fit<S, R::Shape>>
    where
        S: FitsWith<R::Shape>,
    {
        binary(kind, self.handle, r.to_handle())
    }
}
