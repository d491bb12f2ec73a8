//! Inclusive scans along an axis, in operand order; `_reverse` from the end.

use super::reduce::combine;
use super::{Scalar, Tile};
use crate::context;
use crate::elem::{Elem, Num};
use crate::shape::{HasAxis, Shape};
use tegula_ir::{Attr, Attrs, Key, OpKind, ReduceKind};

impl<T: Elem, S: Shape> Tile<T, S> {
    #[track_caller]
    fn scanned(self, axis: usize, kind: ReduceKind, reverse: bool) -> Self {
        let mut attrs = Attrs::new().with(Key::Axis, Attr::Int(axis as i64)).with(Key::Kind, kind.into());
        if reverse {
            attrs.set(Key::Reverse, Attr::Flag);
        }
        self.derive(OpKind::Scan, T::ELEM, context::shape(self.handle), attrs)
    }

    /// Inclusive scan along axis `AX` by an associative function, the element nearer the start on the left.
    #[track_caller]
    pub fn scan<const AX: usize>(self, f: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Self
    where
        S: HasAxis<AX>,
    {
        let h = combine(OpKind::ScanWith, AX, &[self.handle], &S::extents(), false, |a| {
            vec![f(Tile::new(a[0]), Tile::new(a[1])).handle]
        });
        Tile::new(h[0])
    }

    /// Inclusive scan from the end of axis `AX` by an associative function, what was scanned already on the left.
    #[track_caller]
    pub fn scan_reverse<const AX: usize>(self, f: impl Fn(Scalar<T>, Scalar<T>) -> Scalar<T>) -> Self
    where
        S: HasAxis<AX>,
    {
        let h = combine(OpKind::ScanWith, AX, &[self.handle], &S::extents(), true, |a| {
            vec![f(Tile::new(a[0]), Tile::new(a[1])).handle]
        });
        Tile::new(h[0])
    }
}

macro_rules! scans { ($($(#[$doc:meta])* $m:ident $rev:ident $kind:ident;)*) => {
    impl<T: Num, S: Shape> Tile<T, S> {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $m<const AX: usize>(self) -> Self where S: HasAxis<AX> { self.scanned(AX, ReduceKind::$kind, false) }
        $(#[$doc])*
        ///
        /// From the end of the axis.
        #[track_caller]
        pub fn $rev<const AX: usize>(self) -> Self where S: HasAxis<AX> { self.scanned(AX, ReduceKind::$kind, true) }
    )*}
} }
scans! {
    /// Running sum along an axis.
    cumsum cumsum_reverse Sum;
    /// Running product along an axis.
    cumprod cumprod_reverse Prod;
    /// Running maximum along an axis; NaNs are ignored.
    cummax cummax_reverse Max;
    /// Running minimum along an axis; NaNs are ignored.
    cummin cummin_reverse Min;
}
