//! Tensors as kernel arguments.

use super::{PackedTensor, Tensor, TensorView, TensorViewMut, strided::Strided};
use crate::memory::Buffer;
use std::{marker::PhantomData, sync::Arc};
use tegula_lang::{
    Elem, Packed, View, ViewMut,
    launch::{Arg, ArgData, PackedArg, ViewArg},
    packed::Format,
};

fn data<'a, T: Elem>(start: *mut T, shape: Strided, owner: Option<&'a Arc<Buffer>>, mutable: bool) -> ArgData<'a> {
    let (extents, strides) = shape.to_arg();
    ArgData::View(ViewArg {
        ptr: start.cast(),
        elem: T::ELEM,
        mutable,
        rank: shape.rank() as u8,
        extents,
        strides,
        owner: owner.map(|o| o as _),
        borrow: PhantomData,
    })
}

impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for &'a Tensor<T> {
    fn arg(self) -> ArgData<'a> {
        data(self.start(), self.shape, Some(&self.buffer), false)
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for &'a mut Tensor<T> {
    // A tensor in a mapped file says that it cannot be written, and the launch refuses it.
    fn arg(self) -> ArgData<'a> {
        self.forget_mirrors();
        data(self.start(), self.shape, Some(&self.buffer), self.buffer.writable())
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for TensorView<'a, T> {
    fn arg(self) -> ArgData<'a> {
        data(self.start, self.shape, self.owner, false)
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, View<T, R>> for &'a TensorView<'_, T> {
    fn arg(self) -> ArgData<'a> {
        data(self.start, self.shape, self.owner, false)
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for TensorViewMut<'a, T> {
    fn arg(self) -> ArgData<'a> {
        data(self.start, self.shape, self.owner, true)
    }
}

impl<'a, T: Elem, const R: usize> Arg<'a, ViewMut<T, R>> for &'a mut TensorViewMut<'_, T> {
    fn arg(self) -> ArgData<'a> {
        data(self.start, self.shape, self.owner, true)
    }
}

impl<'a, Q: Format> Arg<'a, Packed<Q>> for &'a PackedTensor {
    fn arg(self) -> ArgData<'a> {
        ArgData::Packed(PackedArg {
            ptr: self.start(),
            // A matrix that fits in memory has extents below 2^63; the launch refuses those beyond 2^31.
            k: self.k() as i64,
            n: self.n() as i64,
            quant: self.quant(),
            layout: self.layout(),
            owner: Some(self.buffer()),
            borrow: PhantomData,
        })
    }
}
