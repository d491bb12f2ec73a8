//! Sorting and counting.

use super::Tile;
use crate::context;
use crate::dim::Dim;
use crate::elem::{Int, Num};
use crate::shape::{HasLast, Shape};
use std::panic::Location;
use tegula_ir::{Attr, Attrs, Elem as IrElem, Key, OpKind, Type};

impl<T: Num, S: HasLast> Tile<T, S> {
    /// Sorts along the last axis, smallest first; stable, NaN last.
    #[track_caller]
    pub fn sort(self) -> Self {
        self.derive(OpKind::Sort, T::ELEM, context::shape(self.handle), Attrs::new())
    }

    /// Sorts along the last axis, largest first; stable, NaN last.
    #[track_caller]
    pub fn sort_descending(self) -> Self {
        self.derive(OpKind::Sort, T::ELEM, context::shape(self.handle), Attrs::new().with(Key::Descending, Attr::Flag))
    }

    /// The `K` largest along the last axis, largest first, and their indices (the lowest first among equals; NaN below
    /// everything).
    #[track_caller]
    pub fn topk<K: Dim>(self) -> (Tile<T, S::WithLast<K>>, Tile<i32, S::WithLast<K>>) {
        let (k, of) = (K::extent(), context::shape(self.handle).last().copied().unwrap_or(0));
        let shape = S::WithLast::<K>::extents();
        let types = [Type::tile(T::ELEM, shape.clone()), Type::tile(IrElem::I32, shape)];
        if k > of {
            context::fault(format!("`topk`: the {k} largest of an axis of {of}"));
            let [values, indices] = types.map(|t| context::stand_in(t));
            return (Tile::new(values), Tile::new(indices));
        }
        let at = Location::caller();
        let r = context::with(|c| {
            c.op(OpKind::TopK, &[self.handle], &types, Attrs::new().with(Key::K, Attr::Int(k as i64)), vec![], at)
        });
        (Tile::new(r[0]), Tile::new(r[1]))
    }
}

impl<T: Int, D: Dim> Tile<T, (D,)> {
    /// How often each of the values 0, 1, … below `BINS` occurs; other values are not counted.
    #[track_caller]
    pub fn histogram<BINS: Dim>(self) -> Tile<i32, (BINS,)> {
        let bins = BINS::extent();
        self.derive(OpKind::Histogram, IrElem::I32, vec![bins], Attrs::new().with(Key::Bins, Attr::Int(bins as i64)))
    }

    /// As [`Tile::histogram`], counting only where `mask` is true.
    #[track_caller]
    pub fn histogram_masked<BINS: Dim>(self, mask: Tile<bool, (D,)>) -> Tile<i32, (BINS,)> {
        let bins = BINS::extent();
        let attrs = Attrs::new().with(Key::Bins, Attr::Int(bins as i64)).with(Key::Masked, Attr::Flag);
        Tile::new(context::emit(OpKind::Histogram, &[self.handle, mask.handle], Type::tile(IrElem::I32, [bins]), attrs))
    }
}
