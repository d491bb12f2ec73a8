//! Compares, `&&` and `||`: Rust's own give `bool`, so the macro calls these instead.

use crate::elem::{Elem, Float, Int};
use crate::shape::{Fit, FitsWith, Shape};
use crate::tile::{Operand, Tile, binary};
use half::{bf16, f16};
use tegula_ir::OpKind;

// Name, op, operator, and what it asks of host values: equality asks less than order.
macro_rules! compares { ($($tr:ident $kind:ident $op:tt $host:ident;)*) => {$(
    /// `A $op B`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` and `{B}` cannot be compared in a kernel",
        label = "these cannot be compared",
        note = "tiles and scalars compare with their own element type and a shape that fits; other compile-time values compare by reference, `&a == &b`, or with `matches!`"
    )]
    pub trait $tr<B> {
        #[doc(hidden)]
        type Truth;
        #[doc(hidden)]
        #[track_caller]
        fn compare(self, b: B) -> Self::Truth;
    }
    impl<T: Elem, S: Shape + FitsWith<R::Shape>, R: Operand<T>> $tr<R> for Tile<T, S> {
        type Truth = Tile<bool, Fit<S, R::Shape>>;
        fn compare(self, r: R) -> Self::Truth { truth::<T, _>(OpKind::$kind, self, r) }
    }
    compares!(@host $tr $kind $op Float f32 f64; Int i8 i16 i32 i64 u8 u16 u32 u64 usize);
    compares!(@plain $tr $op i128 u128 isize char f16 bf16 bool);
    impl<'a, A: $host<B> + ?Sized, B: ?Sized> $tr<&'a B> for &'a A {
        type Truth = bool;
        fn compare(self, b: &B) -> bool { self $op b }
    }
)*};
(@host $tr:ident $kind:ident $op:tt $($bound:ident $($h:ty)*);*) => {$($(
    compares!(@plain $tr $op $h);
    impl<T: $bound, S: Shape> $tr<Tile<T, S>> for $h {
        type Truth = Tile<bool, S>;
        fn compare(self, r: Tile<T, S>) -> Self::Truth {
            binary_truth(OpKind::$kind, Operand::<T>::to_handle(self), r.handle())
        }
    }
)*)*};
(@plain $tr:ident $op:tt $($h:ty)*) => {$(
    impl $tr<$h> for $h {
        type Truth = bool;
        fn compare(self, b: $h) -> bool { self $op b }
    }
)*}; }
compares! {
    Less Lt < PartialOrd;
    LessEq Le <= PartialOrd;
    Greater Gt > PartialOrd;
    GreaterEq Ge >= PartialOrd;
    Equal Eq == PartialEq;
    NotEqual Ne != PartialEq;
}

#[track_caller]
fn truth<T: Elem, S>(kind: OpKind, a: Tile<T, impl Shape>, b: impl Operand<T>) -> Tile<bool, S> {
    let b = b.to_handle();
    binary_truth(kind, a.handle(), b)
}
#[track_caller]
fn binary_truth<S>(kind: OpKind, a: crate::context::Handle, b: crate::context::Handle) -> Tile<bool, S> {
    binary::<bool, S>(kind, a, b)
}

/// `&&` and `||`: a build-time left side decides whether the right one is evaluated, a run-time one evaluates both.
#[diagnostic::on_unimplemented(
    message = "`&&` and `||` cannot join `{Self}` and `{B}`",
    label = "both sides must be `bool`, or scalars or tiles of bool"
)]
pub trait Logic<B> {
    #[doc(hidden)]
    type Truth;
    #[doc(hidden)]
    #[track_caller]
    fn and(self, b: impl FnOnce() -> B) -> Self::Truth;
    #[doc(hidden)]
    #[track_caller]
    fn or(self, b: impl FnOnce() -> B) -> Self::Truth;
}
impl Logic<bool> for bool {
    type Truth = bool;
    fn and(self, b: impl FnOnce() -> bool) -> bool {
        self && b()
    }
    fn or(self, b: impl FnOnce() -> bool) -> bool {
        self || b()
    }
}
impl<S: Shape> Logic<Tile<bool, S>> for bool {
    type Truth = Tile<bool, S>;
    fn and(self, b: impl FnOnce() -> Tile<bool, S>) -> Tile<bool, S> {
        if self { b() } else { crate::tile::full(false) }
    }
    fn or(self, b: impl FnOnce() -> Tile<bool, S>) -> Tile<bool, S> {
        if self { crate::tile::full(true) } else { b() }
    }
}
impl<S: Shape + FitsWith<R::Shape>, R: Operand<bool>> Logic<R> for Tile<bool, S> {
    type Truth = Tile<bool, Fit<S, R::Shape>>;
    fn and(self, b: impl FnOnce() -> R) -> Self::Truth {
        self & b()
    }
    fn or(self, b: impl FnOnce() -> R) -> Self::Truth {
        self | b()
    }
}
