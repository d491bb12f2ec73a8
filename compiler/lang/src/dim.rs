//! Extents as types.
//!
//! [`C<N>`](C) has its number in the type. A kernel's own dim parameters are [`Named`]: the number is given when the
//! kernel is built, and two of them never unify, so that rustc finds a mixed-up extent in a generic kernel. [`One`] is
//! the extent 1 that broadcasts. [`Half`], [`Sum`] and [`Prod`] compute with extents; what they need (an even number,
//! say) is checked when the kernel is built.

use crate::context;
use std::any::TypeId;
use std::marker::PhantomData;

/// An extent known by its number.
#[derive(Clone, Copy, Debug)]
pub struct C<const N: usize>;

/// Extent 1, which repeats to any extent beside it. A reduction leaves its axis as `One`.
#[derive(Clone, Copy, Debug)]
pub struct One;

/// The `I`-th dim parameter of kernel `K`: what `#[kernel]` puts for it.
#[derive(Debug)]
pub struct Named<K, const I: usize>(PhantomData<fn() -> K>);

/// Half of an even extent.
#[derive(Debug)]
pub struct Half<D>(PhantomData<D>);

/// The sum of two extents: what `cat` gives.
#[derive(Debug)]
pub struct Sum<A, B>(PhantomData<(A, B)>);

/// The product of two extents: for `reshape`.
#[derive(Debug)]
pub struct Prod<A, B>(PhantomData<(A, B)>);

/// An extent of a tile.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an extent of a tile",
    label = "not an extent",
    note = "extents are `C<N>`, `One`, a kernel's own dim parameters (`BM: Dim`), `Half<D>`, `Sum<A, B>` and `Prod<A, B>`"
)]
pub trait Dim: Copy + 'static + Meets<Self, Met = Self> + Meets<One, Met = Self> {
    /// The number, while a kernel is being built.
    #[track_caller]
    fn extent() -> usize;
    /// How messages name it: `BM = 128`.
    #[doc(hidden)]
    #[track_caller]
    fn described() -> String {
        Self::extent().to_string()
    }
}

/// Two extents side by side in an operation on two tiles. `Met` is the extent of the result.
#[diagnostic::on_unimplemented(
    message = "extents `{Self}` and `{D}` do not fit together",
    label = "these two extents differ",
    note = "extents must be the same, or one of them `One` (a reduction keeps its axis as `One`; `expand` makes one); equal numbers under different names meet through `same`"
)]
pub trait Meets<D> {
    /// The extent of the result.
    type Met: Dim;
}

impl<D: Dim> Meets<D> for One {
    type Met = D;
}
impl<const N: usize> Meets<C<N>> for C<N> {
    type Met = C<N>;
}
impl<const N: usize> Meets<One> for C<N> {
    type Met = C<N>;
}

impl Dim for One {
    fn extent() -> usize {
        1
    }
}
impl<const N: usize> Dim for C<N> {
    fn extent() -> usize {
        if N == 0 {
            context::fault("the extent `C<0>` is empty: a tile has at least one element along each axis");
            return 1;
        }
        N
    }
}

macro_rules! derived { ($($name:ident[$($g:tt)*] <$($p:ident),*> $(where $w:ident)*;)*) => {$(
    impl<$($g)*> Clone for $name<$($p),*> { fn clone(&self) -> Self { *self } }
    impl<$($g)*> Copy for $name<$($p),*> {}
    impl<$($g)*> Meets<$name<$($p),*>> for $name<$($p),*> where $name<$($p),*>: Dim { type Met = Self; }
    impl<$($g)*> Meets<One> for $name<$($p),*> where $name<$($p),*>: Dim { type Met = Self; }
)*} }
derived! {
    Named[K, const I: usize]<K, I>;
    Half[D]<D>;
    Sum[A, B]<A, B>;
    Prod[A, B]<A, B>;
}

impl<K: 'static, const I: usize> Dim for Named<K, I> {
    fn extent() -> usize {
        match context::with(|c| c.dim(TypeId::of::<Self>())) {
            Some(d) => d.extent,
            None => {
                context::fault("the extent of a dim of another kernel is used, which has no value here");
                1
            }
        }
    }
    fn described() -> String {
        match context::with(|c| c.dim(TypeId::of::<Self>())) {
            Some(d) => format!("{} = {}", d.name, d.extent),
            None => "?".into(),
        }
    }
}
impl<D: Dim> Dim for Half<D> {
    fn extent() -> usize {
        let n = D::extent();
        if n % 2 != 0 {
            context::fault(format!("`Half` of the extent {}, which is odd", D::described()));
        }
        n.div_ceil(2)
    }
}
impl<A: Dim, B: Dim> Dim for Sum<A, B> {
    fn extent() -> usize {
        A::extent() + B::extent()
    }
}
impl<A: Dim, B: Dim> Dim for Prod<A, B> {
    fn extent() -> usize {
        let (a, b) = (A::extent(), B::extent());
        a.checked_mul(b).unwrap_or_else(|| {
            context::fault(format!("the product of the extents {a} and {b} is too large"));
            1
        })
    }
}
