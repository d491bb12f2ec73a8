//! Shapes as types: tuples of up to four extents; `()` is a scalar's.

use crate::context;
use crate::dim::{C, Dim, Meets, One, Sum};
use crate::launch::MOST_ELEMENTS;

/// Two shapes side by side in an operation on two tiles. `Together` is the shape of the result.
#[diagnostic::on_unimplemented(
    message = "tiles of shape `{Self}` and `{R}` do not fit together",
    label = "shape `{Self}` meets shape `{R}`",
    note = "ranks must be equal (or one side a scalar) and each extent the same or `One`"
)]
pub trait FitsWith<R> {
    /// The shape of the result.
    type Together: Shape;
}

/// The shape of an operation on tiles of shapes `A` and `B`.
pub type Fit<A, B> = <A as FitsWith<B>>::Together;

/// A shape: a tuple of up to four [`Dim`]s.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile shape",
    note = "a shape is a tuple of up to 4 extents: `(C<64>, One)`, `(BM, BN)`; of one: `(BN,)`"
)]
pub trait Shape: Copy + 'static + FitsWith<(), Together = Self> + FitsWith<Self, Together = Self> {
    /// Number of axes.
    const RANK: usize;
    /// The extents, while a kernel is being built.
    #[track_caller]
    fn extents() -> Vec<usize>;
}

impl Shape for () {
    const RANK: usize = 0;
    fn extents() -> Vec<usize> {
        vec![]
    }
}
impl<S: Shape> FitsWith<S> for () {
    type Together = S;
}

macro_rules! ranks { ($($r:literal: $($a:ident $b:ident),+;)*) => {$(
    impl<$($a: Dim),+> Shape for ($($a,)+) {
        const RANK: usize = $r;
        #[track_caller]
        fn extents() -> Vec<usize> { checked(vec![$($a::extent()),+]) }
    }
    impl<$($a: Dim),+> FitsWith<()> for ($($a,)+) { type Together = Self; }
    #[diagnostic::do_not_recommend]
    impl<$($a: Dim + Meets<$b>, $b: Dim),+> FitsWith<($($b,)+)> for ($($a,)+) { type Together = ($(<$a as Meets<$b>>::Met,)+); }
    impl<$($a: Dim),+> OfRank<$r> for ($($a,)+) {}
)*} }
ranks! { 1: A0 B0; 2: A0 B0, A1 B1; 3: A0 B0, A1 B1, A2 B2; 4: A0 B0, A1 B1, A2 B2, A3 B3; }

/// Refuses what no machine can hold: lengths are computed with later, and must not overflow.
#[track_caller]
fn checked(extents: Vec<usize>) -> Vec<usize> {
    let len = extents.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n <= MOST_ELEMENTS);
    if len.is_none() {
        context::fault(format!("a tile of shape {extents:?} has more than 2^30 elements"));
        return vec![1; extents.len()];
    }
    extents
}

/// A shape of one element: `One` or `C<1>` along every axis.
#[diagnostic::on_unimplemented(
    message = "a tile of shape `{Self}` is not known to have one element only",
    label = "expected `One` or `C<1>` along every axis",
    note = "one element of many: reduce the tile, or take it apart with `at::<AX>(i)`"
)]
pub trait Single: Shape {}
/// The extent 1, by either name.
#[doc(hidden)]
pub trait SingleExtent: Dim {}
impl SingleExtent for One {}
impl SingleExtent for C<1> {}
impl Single for () {}
impl<A: SingleExtent> Single for (A,) {}
impl<A: SingleExtent, B: SingleExtent> Single for (A, B) {}
impl<A: SingleExtent, B: SingleExtent, D: SingleExtent> Single for (A, B, D) {}
impl<A: SingleExtent, B: SingleExtent, D: SingleExtent, E: SingleExtent> Single for (A, B, D, E) {}

/// A shape with `R` axes.
#[diagnostic::on_unimplemented(
    message = "a view of rank {R} is loaded and stored in tiles of rank {R}, found shape `{Self}`",
    label = "not a shape of rank {R}"
)]
pub trait OfRank<const R: usize>: Shape {}

/// A shape with an axis `AX`.
#[diagnostic::on_unimplemented(
    message = "shape `{Self}` has no axis {AX}",
    label = "no such axis",
    note = "axes are numbered from 0"
)]
pub trait HasAxis<const AX: usize>: Shape {
    /// The axis's extent.
    type Extent: Dim;
    /// The shape with that axis as `One`.
    type Reduced: Shape;
    /// The shape with that axis as `D`.
    type With<D: Dim>: Shape;
}

/// A shape that has room for a new axis at `AX`.
#[diagnostic::on_unimplemented(
    message = "no axis can be put at {AX} of shape `{Self}`",
    note = "a shape has at most 4 axes, and no gaps"
)]
pub trait Expand<const AX: usize>: Shape {
    /// The shape with `One` put in at that axis.
    type Expanded: Shape;
}

/// A shape whose axis `AX` is `One`.
#[diagnostic::on_unimplemented(
    message = "axis {AX} of shape `{Self}` cannot be squeezed away",
    label = "this axis must exist and be `One`"
)]
pub trait Squeeze<const AX: usize>: Shape {
    /// The shape without that axis.
    type Squeezed: Shape;
}

/// A shape with at least one axis.
#[diagnostic::on_unimplemented(message = "a scalar has no last axis", label = "found shape `{Self}`")]
pub trait HasLast: Shape {
    /// The shape with its last axis as `D`.
    type WithLast<D: Dim>: Shape;
}
macro_rules! lasts { ($([$($a:ident),*])*) => {$(
    impl<$($a: Dim,)* L: Dim> HasLast for ($($a,)* L,) { type WithLast<X: Dim> = ($($a,)* X,); }
)*} }
lasts! { [] [A] [A, B] [A, B, D] }

macro_rules! axes { ($($ax:literal [$($p:ident),*] [$($s:ident),*];)*) => {$(
    impl<$($p: Dim,)* X: Dim, $($s: Dim),*> HasAxis<$ax> for ($($p,)* X, $($s,)*) {
        type Extent = X;
        type Reduced = ($($p,)* One, $($s,)*);
        type With<Y: Dim> = ($($p,)* Y, $($s,)*);
    }
    impl<$($p: Dim,)* $($s: Dim),*> Squeeze<$ax> for ($($p,)* One, $($s,)*) { type Squeezed = ($($p,)* $($s,)*); }
    impl<$($p: Dim,)* $($s: Dim),*> Expand<$ax> for ($($p,)* $($s,)*) { type Expanded = ($($p,)* One, $($s,)*); }
)*} }
axes! {
    0 [] [];
    0 [] [A]; 1 [A] [];
    0 [] [A, B]; 1 [A] [B]; 2 [A, B] [];
    0 [] [A, B, D]; 1 [A] [B, D]; 2 [A, B] [D]; 3 [A, B, D] [];
}

/// Shapes of tiles that may be multiplied: `(M, K)` and `(K, N)`.
#[diagnostic::on_unimplemented(
    message = "`dot` multiplies tiles of shape (M, K) and (K, N), found `{Self}` and `{R}`",
    label = "not the shape of a matrix"
)]
pub trait DotWith<R>: Shape {
    /// The shape of the product.
    type Product: Shape;
}
impl<M: Dim, K: Dim, N: Dim> DotWith<(K, N)> for (M, K) {
    type Product = (M, N);
}

/// A shape of two axes.
#[diagnostic::on_unimplemented(
    message = "only a tile of rank 2 can be transposed with `t`, found shape `{Self}`",
    note = "for other ranks there is `permute`"
)]
pub trait Transpose<const RANK: usize = 2>: Shape {
    /// The shape with its axes swapped.
    type Transposed: Shape;
}
impl<A: Dim, B: Dim> Transpose<2> for (A, B) {
    type Transposed = (B, A);
}

/// A shape whose axes can be put in the order of `P`, an [`Order3`] or [`Order4`].
#[diagnostic::on_unimplemented(
    message = "shape `{Self}` cannot be permuted by `{P}`",
    note = "an order names every axis once: `Order3<1, 0, 2>` for rank 3, `Order4<0, 2, 1, 3>` for rank 4; for rank 2 there is `t`"
)]
pub trait Permute<P>: Shape {
    /// The shape in that order.
    type Permuted: Shape;
    /// Result axis i is this axis of the operand.
    const ORDER: &'static [i64];
}

/// Axis order of a tile of rank 3, for `permute`.
#[derive(Clone, Copy, Debug)]
pub struct Order3<const A: usize, const B: usize, const C: usize>;
/// Axis order of a tile of rank 4, for `permute`.
#[derive(Clone, Copy, Debug)]
pub struct Order4<const A: usize, const B: usize, const C: usize, const D: usize>;

impl<S, X: Dim, Y: Dim, Z: Dim, const A: usize, const B: usize, const E: usize> Permute<Order3<A, B, E>> for S
where
    S: HasAxis<A, Extent = X> + HasAxis<B, Extent = Y> + HasAxis<E, Extent = Z> + OfRank<3>,
{
    type Permuted = (X, Y, Z);
    const ORDER: &'static [i64] = &[A as i64, B as i64, E as i64];
}
impl<S, X: Dim, Y: Dim, Z: Dim, W: Dim, const A: usize, const B: usize, const E: usize, const F: usize>
    Permute<Order4<A, B, E, F>> for S
where
    S: HasAxis<A, Extent = X> + HasAxis<B, Extent = Y> + HasAxis<E, Extent = Z> + HasAxis<F, Extent = W> + OfRank<4>,
{
    type Permuted = (X, Y, Z, W);
    const ORDER: &'static [i64] = &[A as i64, B as i64, E as i64, F as i64];
}

/// A shape that `join` can give a last axis of 2.
#[diagnostic::on_unimplemented(message = "`join` adds an axis, and shape `{Self}` has no room for one")]
pub trait Join<const PARTS: usize = 2>: Shape {
    /// The shape with a last axis of 2.
    type Joined: Shape;
}
/// A shape whose last axis is `C<2>`, which `split` takes apart.
#[diagnostic::on_unimplemented(
    message = "`split` needs a last axis of extent `C<2>`, found shape `{Self}`",
    note = "first `reshape::<(.., Half<D>, C<2>)>()`"
)]
pub trait Split<const PARTS: usize = 2>: Shape {
    /// The shape without its last axis.
    type Part: Shape;
}
macro_rules! joins { ($([$($a:ident),*])*) => {$(
    impl<$($a: Dim),*> Join<2> for ($($a,)*) { type Joined = ($($a,)* C<2>,); }
    impl<$($a: Dim),*> Split<2> for ($($a,)* C<2>,) { type Part = ($($a,)*); }
)*} }
joins! { [] [A] [A, B] [A, B, D] }

/// Two shapes that can be put one after the other along axis `AX`.
#[diagnostic::on_unimplemented(
    message = "tiles of shape `{Self}` and `{R}` cannot be put one after the other along axis {AX}",
    label = "all other extents must be the same"
)]
pub trait Cat<const AX: usize, R>: Shape {
    /// The shape of both.
    type Both: Shape;
}
macro_rules! cats { ($($ax:literal [$($p:ident),*] [$($s:ident),*];)*) => {$(
    impl<$($p: Dim,)* X: Dim, Y: Dim, $($s: Dim),*> Cat<$ax, ($($p,)* Y, $($s,)*)> for ($($p,)* X, $($s,)*) {
        type Both = ($($p,)* Sum<X, Y>, $($s,)*);
    }
)*} }
cats! {
    0 [] [];
    0 [] [A]; 1 [A] [];
    0 [] [A, B]; 1 [A] [B]; 2 [A, B] [];
    0 [] [A, B, D]; 1 [A] [B, D]; 2 [A, B] [D]; 3 [A, B, D] [];
}

// Never chosen by anyone: they keep rustc from dismissing the method before it can print the messages above.
const NEVER: usize = usize::MAX;
#[diagnostic::do_not_recommend]
impl<S: Shape> Squeeze<NEVER> for S {
    type Squeezed = S;
}
#[diagnostic::do_not_recommend]
impl<S: Shape> Expand<NEVER> for S {
    type Expanded = S;
}
#[diagnostic::do_not_recommend]
impl<S: Shape> Transpose<NEVER> for S {
    type Transposed = S;
}
#[diagnostic::do_not_recommend]
impl<S: Shape> Split<NEVER> for S {
    type Part = S;
}
#[diagnostic::do_not_recommend]
impl<S: Shape> Join<NEVER> for S {
    type Joined = S;
}
