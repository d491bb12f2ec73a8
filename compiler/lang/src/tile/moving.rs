//! Moving elements: shapes, parts, choices.

use super::{Operand, Tile, broadcast_to, fit};
use crate::context;
use crate::dim::{Dim, One};
use crate::elem::{Elem, Int};
use crate::shape::*;
use tegula_ir::{Attr, Attrs, Key, OpKind, Type};

impl<T: Elem, S: Shape> Tile<T, S> {
    /// Puts in an axis of extent `One` at `AX`: `(BN,)` becomes `(One, BN)` by `expand::<0>()`.
    #[track_caller]
    pub fn expand<const AX: usize>(self) -> Tile<T, S::Expanded>
    where
        S: Expand<AX>,
    {
        let mut shape = context::shape(self.handle);
        if AX <= shape.len() {
            shape.insert(AX, 1);
        }
        self.derive(OpKind::Reshape, T::ELEM, shape, Attrs::new())
    }

    /// Takes away axis `AX`, which is `One`.
    #[track_caller]
    pub fn squeeze<const AX: usize>(self) -> Tile<T, S::Squeezed>
    where
        S: Squeeze<AX>,
    {
        let mut shape = context::shape(self.handle);
        if AX < shape.len() {
            shape.remove(AX);
        }
        self.derive(OpKind::Reshape, T::ELEM, shape, Attrs::new())
    }

    /// Swaps the two axes.
    #[track_caller]
    pub fn t(self) -> Tile<T, S::Transposed>
    where
        S: Transpose<2>,
    {
        let mut shape = context::shape(self.handle);
        shape.reverse();
        self.derive(OpKind::Permute, T::ELEM, shape, Attrs::new().with(Key::Perm, Attr::Ints(vec![1, 0])))
    }

    /// Axes in another order: result axis i is axis `P[i]` of this tile. `permute::<Order3<1, 0, 2>>()`.
    #[track_caller]
    pub fn permute<P>(self) -> Tile<T, S::Permuted>
    where
        S: Permute<P>,
    {
        let mut sorted = S::ORDER.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != S::ORDER.len() {
            context::fault(format!("`permute` by {:?}: an order names every axis once", S::ORDER));
            return Tile::new(context::stand_in(Type::tile(T::ELEM, S::Permuted::extents())));
        }
        self.derive(
            OpKind::Permute,
            T::ELEM,
            S::Permuted::extents(),
            Attrs::new().with(Key::Perm, Attr::Ints(S::ORDER.to_vec())),
        )
    }

    /// Repeats `One`s and missing axes to shape `R`: a scalar becomes any shape.
    #[track_caller]
    pub fn broadcast<R: Shape>(self) -> Tile<T, R>
    where
        S: FitsWith<R, Together = R>,
    {
        Tile::new(broadcast_to(self.handle, &R::extents()))
    }

    /// The same elements in row-major order under another shape of as many elements (checked when the kernel is built).
    #[track_caller]
    pub fn reshape<R: Shape>(self) -> Tile<T, R> {
        let (from, to) = (context::shape(self.handle), R::extents());
        let (n, m): (usize, usize) = (from.iter().product(), to.iter().product());
        if n != m {
            context::fault(format!("`reshape` of shape {from:?} ({n} elements) to {to:?} ({m} elements)"));
            return Tile::new(context::stand_in(Type::tile(T::ELEM, to)));
        }
        self.derive(OpKind::Reshape, T::ELEM, to, Attrs::new())
    }

    /// The same tile with axis `AX` under the name `D`, whose value must be that axis's extent (checked when the kernel
    /// is built). This is how equal extents of different names meet.
    #[track_caller]
    pub fn same<const AX: usize, D: Dim>(self) -> Tile<T, S::With<D>>
    where
        S: HasAxis<AX>,
    {
        let (found, want) = (S::Extent::extent(), D::extent());
        if found != want {
            context::fault(format!(
                "`same`: axis {AX} has extent {}, which is not {}",
                S::Extent::described(),
                D::described()
            ));
            return Tile::new(context::stand_in(Type::tile(T::ELEM, S::With::<D>::extents())));
        }
        Tile::new(self.handle)
    }

    /// The `D` elements from `start` along axis `AX`.
    #[track_caller]
    pub fn slice<const AX: usize, D: Dim>(self, start: usize) -> Tile<T, S::With<D>>
    where
        S: HasAxis<AX>,
    {
        let (extent, size, shape) = (S::Extent::extent(), D::extent(), S::With::<D>::extents());
        if start.checked_add(size).is_none_or(|end| end > extent) {
            context::fault(format!("`slice` of {size} elements from {start} along axis {AX}, which has {extent}"));
            return Tile::new(context::stand_in(Type::tile(T::ELEM, shape)));
        }
        let attrs = Attrs::new()
            .with(Key::Axis, Attr::Int(AX as i64))
            .with(Key::Start, Attr::Int(start as i64))
            .with(Key::Size, Attr::Int(size as i64));
        self.derive(OpKind::Slice, T::ELEM, shape, attrs)
    }

    /// Element `i` along axis `AX`, which stays as `One`.
    #[track_caller]
    pub fn at<const AX: usize>(self, i: usize) -> Tile<T, S::With<One>>
    where
        S: HasAxis<AX>,
    {
        self.slice::<AX, One>(i)
    }

    /// This tile, then `other`, along axis `AX`, whose extent becomes the [`Sum`](crate::dim::Sum).
    #[track_caller]
    pub fn cat<const AX: usize, R: Shape>(self, other: Tile<T, R>) -> Tile<T, S::Both>
    where
        S: Cat<AX, R>,
    {
        let attrs = Attrs::new().with(Key::Axis, Attr::Int(AX as i64));
        Tile::new(context::emit(
            OpKind::Cat,
            &[self.handle, other.handle],
            Type::tile(T::ELEM, S::Both::extents()),
            attrs,
        ))
    }

    /// This tile and `other` as a new last axis of 2.
    #[track_caller]
    pub fn join(self, other: Self) -> Tile<T, S::Joined>
    where
        S: Join<2>,
    {
        let shape = context::shape(self.handle);
        let rank = shape.len();
        let one = Type::tile(T::ELEM, [shape, vec![1]].concat());
        let a = context::emit(OpKind::Reshape, &[self.handle], one.clone(), Attrs::new());
        let b = context::emit(OpKind::Reshape, &[other.handle], one, Attrs::new());
        let attrs = Attrs::new().with(Key::Axis, Attr::Int(rank as i64));
        Tile::new(context::emit(OpKind::Cat, &[a, b], Type::tile(T::ELEM, S::Joined::extents()), attrs))
    }

    /// The two halves of a last axis of 2: undoes [`Tile::join`].
    #[track_caller]
    pub fn split(self) -> (Tile<T, S::Part>, Tile<T, S::Part>)
    where
        S: Split<2>,
    {
        let shape = context::shape(self.handle);
        let rank = shape.len();
        let (kept, one) = (&shape[..rank.saturating_sub(1)], [&shape[..rank.saturating_sub(1)], &[1]].concat());
        let part = |start: i64| {
            Attrs::new()
                .with(Key::Axis, Attr::Int(rank as i64 - 1))
                .with(Key::Start, Attr::Int(start))
                .with(Key::Size, Attr::Int(1))
        };
        let a = context::emit(OpKind::Slice, &[self.handle], Type::tile(T::ELEM, one.clone()), part(0));
        let b = context::emit(OpKind::Slice, &[self.handle], Type::tile(T::ELEM, one), part(1));
        let a = context::emit(OpKind::Reshape, &[a], Type::tile(T::ELEM, kept), Attrs::new());
        let b = context::emit(OpKind::Reshape, &[b], Type::tile(T::ELEM, kept), Attrs::new());
        (Tile::new(a), Tile::new(b))
    }

    /// Elements of this tile along axis `AX` at `index`, which has this tile's shape but for that axis; an index outside
    /// gives 0.
    #[track_caller]
    pub fn take<const AX: usize, I: Int, D: Dim>(self, index: Tile<I, S::With<D>>) -> Tile<T, S::With<D>>
    where
        S: HasAxis<AX>,
    {
        let attrs = Attrs::new().with(Key::Axis, Attr::Int(AX as i64));
        Tile::new(context::emit(
            OpKind::Take,
            &[self.handle, index.handle],
            Type::tile(T::ELEM, context::shape(index.handle)),
            attrs,
        ))
    }
}

impl<T: Elem> Tile<T, ()> {
    /// A scalar as a tile of one element.
    #[track_caller]
    pub fn tile(self) -> Tile<T, (One,)> {
        self.expand::<0>()
    }
}

impl<T: Elem, S: Shape> Tile<T, S> {
    /// The only element of a tile of any rank.
    #[track_caller]
    pub fn item(self) -> Tile<T, ()>
    where
        S: Single,
    {
        if S::RANK == 0 { Tile::new(self.handle) } else { self.reshape() }
    }
}

/// `a` where `cond` is true, else `b`, elementwise; shapes are repeated to fit.
#[track_caller]
pub fn select<T: Elem, S: Shape + FitsWith<A::Shape>, A: Operand<T>, B: Operand<T>>(
    cond: Tile<bool, S>,
    a: A,
    b: B,
) -> Tile<T, Fit<Fit<S, A::Shape>, B::Shape>>
where
    Fit<S, A::Shape>: FitsWith<B::Shape>,
{
    let (a, b) = (a.to_handle(), b.to_handle());
    let shape = fit(&fit(&context::shape(cond.handle), &context::shape(a)), &context::shape(b));
    let operands = [broadcast_to(cond.handle, &shape), broadcast_to(a, &shape), broadcast_to(b, &shape)];
    Tile::new(context::emit(OpKind::Select, &operands, Type::tile(T::ELEM, shape), Attrs::new()))
}
