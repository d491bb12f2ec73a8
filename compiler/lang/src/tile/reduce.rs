//! Reductions along an axis, which stays as `One`, so that the result fits beside the operand.

use super::{Scalar, Tile};
use crate::context::{self, Handle};
use crate::elem::{Bitwise, Elem, Float, Num};
use crate::shape::{HasAxis, Shape};
use std::panic::Location;
use tegula_ir::{Attr, Attrs, Elem as IrElem, Key, OpKind, ReduceKind, Type};

impl<T: Elem, S: Shape> Tile<T, S> {
    #[track_caller]
    fn reduced<const AX: usize, U: Elem>(self, kind: ReduceKind) -> Tile<U, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        let attrs = Attrs::new().with(Key::Axis, Attr::Int(AX as i64)).with(Key::Kind, kind.into());
        self.derive(OpKind::Reduce, U::ELEM, S::Reduced::extents(), attrs)
    }

    /// Combines the elements along axis `AX` by an associative function of two scalars: `|a, b| a * b`.
    #[track_caller]
    pub fn reduce<const AX: usize>(self, f: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Tile<T, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        let h = combine(OpKind::ReduceWith, AX, &[self.handle], &S::Reduced::extents(), false, |a| {
            vec![f(Tile::new(a[0]), Tile::new(a[1])).handle]
        });
        Tile::new(h[0])
    }
}

macro_rules! reductions { ($bound:ident: $($(#[$doc:meta])* $m:ident $kind:ident -> $out:ty;)*) => {
    impl<T: $bound, S: Shape> Tile<T, S> {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $m<const AX: usize>(self) -> Tile<$out, S::Reduced> where S: HasAxis<AX> { self.reduced::<AX, $out>(ReduceKind::$kind) }
    )*}
} }
reductions! { Num:
    /// The sum along an axis. f16, bf16 and 8-bit floats add up in f32 and round once; integers wrap.
    sum Sum -> T;
    /// The product along an axis.
    prod Prod -> T;
    /// The largest along an axis; NaNs are ignored. (`maximum` is elementwise.)
    max Max -> T;
    /// The smallest along an axis; NaNs are ignored. (`minimum` is elementwise.)
    min Min -> T;
    /// The index of the largest along an axis: the lowest among equals; NaNs are skipped, all NaN gives 0.
    argmax Argmax -> i32;
    /// The index of the smallest along an axis: the lowest among equals; NaNs are skipped, all NaN gives 0.
    argmin Argmin -> i32;
}
reductions! { Float:
    /// The largest along an axis; a NaN is kept.
    max_nan MaxNan -> T;
    /// The smallest along an axis; a NaN is kept.
    min_nan MinNan -> T;
}
reductions! { Bitwise:
    /// The exclusive or along an axis.
    xor Xor -> T;
}

impl<T: Num, S: Shape> Tile<T, S> {
    /// The sum along an axis in a type at least as wide: `sum_as::<1, i32>()` of an `i8` tile.
    #[track_caller]
    pub fn sum_as<const AX: usize, U: Num>(self) -> Tile<U, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        let (t, u) = (T::ELEM, U::ELEM);
        if t.is_float() != u.is_float() || u.bits() < t.bits() {
            context::fault(format!(
                "`sum_as` of `{t}` cannot add up in `{u}`: it takes a type of the same kind, at least as wide"
            ));
            return Tile::new(context::stand_in(Type::tile(u, S::Reduced::extents())));
        }
        self.reduced::<AX, U>(ReduceKind::Sum)
    }
}

impl<S: Shape> Tile<bool, S> {
    /// Whether any element along an axis is true.
    #[track_caller]
    pub fn any<const AX: usize>(self) -> Tile<bool, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        self.reduced::<AX, bool>(ReduceKind::Any)
    }
    /// Whether all elements along an axis are true.
    #[track_caller]
    pub fn all<const AX: usize>(self) -> Tile<bool, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        self.reduced::<AX, bool>(ReduceKind::All)
    }
    /// How many elements along an axis are true.
    #[track_caller]
    pub fn count<const AX: usize>(self) -> Tile<i32, S::Reduced>
    where
        S: HasAxis<AX>,
    {
        self.reduced::<AX, i32>(ReduceKind::Sum)
    }
}

/// Two tiles of one shape that are reduced or scanned together: `(values, indices).reduce2::<1>(|(a, i), (b, j)| ..)`.
pub trait Pair<T: Elem, U: Elem, S: Shape>: Sized {
    /// Combines the pairs of elements along axis `AX` by an associative function.
    #[track_caller]
    fn reduce2<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S::Reduced>, Tile<U, S::Reduced>)
    where
        S: HasAxis<AX>;
    /// Inclusive scan of the pairs along axis `AX`, left operand first.
    #[track_caller]
    fn scan2<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S>, Tile<U, S>)
    where
        S: HasAxis<AX>;
    /// Inclusive scan of the pairs from the end of axis `AX`.
    #[track_caller]
    fn scan2_reverse<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S>, Tile<U, S>)
    where
        S: HasAxis<AX>;
}

impl<T: Elem, U: Elem, S: Shape> Pair<T, U, S> for (Tile<T, S>, Tile<U, S>) {
    fn reduce2<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S::Reduced>, Tile<U, S::Reduced>)
    where
        S: HasAxis<AX>,
    {
        let (a, b) = combine2(OpKind::ReduceWith, AX, self, &S::Reduced::extents(), false, f);
        (Tile::new(a), Tile::new(b))
    }
    fn scan2<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S>, Tile<U, S>)
    where
        S: HasAxis<AX>,
    {
        let (a, b) = combine2(OpKind::ScanWith, AX, self, &S::extents(), false, f);
        (Tile::new(a), Tile::new(b))
    }
    fn scan2_reverse<const AX: usize>(
        self,
        f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
    ) -> (Tile<T, S>, Tile<U, S>)
    where
        S: HasAxis<AX>,
    {
        let (a, b) = combine2(OpKind::ScanWith, AX, self, &S::extents(), true, f);
        (Tile::new(a), Tile::new(b))
    }
}

#[track_caller]
fn combine2<T: Elem, U: Elem, S: Shape>(
    kind: OpKind,
    axis: usize,
    (x, y): (Tile<T, S>, Tile<U, S>),
    shape: &[usize],
    reverse: bool,
    f: impl Fn((Scalar<T>, Scalar<U>), (Scalar<T>, Scalar<U>)) -> (Scalar<T>, Scalar<U>),
) -> (Handle, Handle) {
    let r = combine(kind, axis, &[x.handle, y.handle], shape, reverse, |a| {
        let (p, q) = f((Tile::new(a[0]), Tile::new(a[1])), (Tile::new(a[2]), Tile::new(a[3])));
        vec![p.handle, q.handle]
    });
    (r[0], r[1])
}

/// A reduction or scan by a region: its arguments are the left scalars, then the right ones.
#[track_caller]
pub(super) fn combine(
    kind: OpKind,
    axis: usize,
    tiles: &[Handle],
    shape: &[usize],
    reverse: bool,
    f: impl FnOnce(&[Handle]) -> Vec<Handle>,
) -> Vec<Handle> {
    let at = Location::caller();
    let elems: Vec<IrElem> = tiles.iter().map(|&t| context::ty(t).as_tile().map_or(IrElem::I32, |t| t.elem)).collect();
    let scalars: Vec<Type> = elems.iter().chain(&elems).map(|&e| Type::scalar(e)).collect();
    let args = context::with(|c| c.open_combiner(&scalars));
    let given = f(&args);
    let results: Vec<Type> = elems.iter().map(|&e| Type::tile(e, shape)).collect();
    let mut attrs = Attrs::new().with(Key::Axis, Attr::Int(axis as i64));
    if reverse {
        attrs.set(Key::Reverse, Attr::Flag);
    }
    context::with(|c| {
        let region = c.close_combiner(&given, at);
        c.op(kind, tiles, &results, attrs, vec![region], at)
    })
}
