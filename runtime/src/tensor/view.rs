//! Strided parts of tensors, without a copy.

use super::{TensorError, remote, strided::Strided};
use crate::memory::Buffer;
use std::{fmt, marker::PhantomData, ops::Range, sync::Arc};
use tegula_lang::Elem;

/// A strided part of a tensor, to read.
pub struct TensorView<'a, T> {
    pub(super) start: *mut T,
    pub(super) shape: Strided,
    pub(super) owner: Option<&'a Arc<Buffer>>,
    borrow: PhantomData<&'a [T]>,
}

/// A strided part of a tensor, to read and write. No element of it can be reached in another way meanwhile.
pub struct TensorViewMut<'a, T> {
    pub(super) start: *mut T,
    pub(super) shape: Strided,
    pub(super) owner: Option<&'a Arc<Buffer>>,
    borrow: PhantomData<&'a mut [T]>,
}

impl<T> Clone for TensorView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for TensorView<'_, T> {}

// SAFETY: as `&[T]`.
unsafe impl<T: Sync> Send for TensorView<'_, T> {}
// SAFETY: as `&[T]`.
unsafe impl<T: Sync> Sync for TensorView<'_, T> {}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Send> Send for TensorViewMut<'_, T> {}
// SAFETY: as `&mut [T]`.
unsafe impl<T: Sync> Sync for TensorViewMut<'_, T> {}

macro_rules! views { ($($name:ident)*) => {$(
    impl<'a, T: Elem> $name<'a, T> {
        /// # Safety
        /// All elements that `shape` reaches from `start` are initialised, aligned, in `owner` if there is one, and borrowed as the type
        /// says for `'a`.
        pub(super) unsafe fn over(start: *mut T, shape: Strided, owner: Option<&'a Arc<Buffer>>) -> Self {
            $name { start, shape, owner, borrow: PhantomData }
        }

        fn part(self, (shape, offset): (Strided, isize)) -> Self {
            // `offset` leads to an element of the view, or is 0.
            $name { start: self.start.wrapping_offset(offset), shape, ..self }
        }

        /// Extents, outermost first.
        pub fn shape(&self) -> &[usize] { self.shape.extents() }
        /// Strides in elements, outermost first.
        pub fn strides(&self) -> &[isize] { self.shape.strides() }
        /// Number of elements.
        pub fn len(&self) -> usize { self.shape.len() }
        /// Whether it has no element.
        pub fn is_empty(&self) -> bool { self.len() == 0 }

        /// The part `range` of an axis.
        pub fn slice(self, axis: usize, range: Range<usize>) -> Result<Self, TensorError> {
            let part = self.shape.slice(axis, range)?;
            Ok(self.part(part))
        }

        /// Element `at` of an axis; the axis goes.
        pub fn index(self, axis: usize, at: usize) -> Result<Self, TensorError> {
            let part = self.shape.index(axis, at)?;
            Ok(self.part(part))
        }

        /// The axes in another order: axis i of the result is axis `axes[i]`.
        pub fn permute(self, axes: &[usize]) -> Result<Self, TensorError> {
            let shape = self.shape.permute(axes)?;
            Ok(self.part((shape, 0)))
        }

        /// The axes in reverse order.
        pub fn transposed(self) -> Self {
            let shape = self.shape.transposed();
            self.part((shape, 0))
        }

        /// A copy of the elements in row-major order.
        ///
        /// # Panics
        /// If the elements lie on a device and that fails. See `try_to_vec`.
        pub fn to_vec(&self) -> Vec<T> {
            self.try_to_vec().unwrap_or_else(|e| panic!("{e}"))
        }

        /// A copy of the elements in row-major order.
        ///
        /// # Errors
        /// The elements lie on a device, and that fails; errors of kernels that were launched before show here.
        pub fn try_to_vec(&self) -> Result<Vec<T>, TensorError> {
            match self.owner.filter(|b| b.remote().is_some()) {
                Some(buffer) => remote::read(buffer, self.start, self.shape),
                // SAFETY: `len` elements from `start` on.
                None if self.shape.is_row_major() => Ok(unsafe { std::slice::from_raw_parts(self.start, self.len()) }.to_vec()),
                // SAFETY: indices of the view lead to its elements.
                None => Ok(self.shape.indices().map(|i| unsafe { self.start.offset(self.shape.offset(&i)).read() }).collect()),
            }
        }
    }

    impl<T: Elem> fmt::Debug for $name<'_, T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}<{}>{:?}, strides {:?}", stringify!($name), T::ELEM, self.shape(), self.strides())
        }
    }
)*} }
views! { TensorView TensorViewMut }

impl<'a, T: Elem> TensorView<'a, T> {
    /// Values of the host's, in row-major order, without a copy.
    pub fn of(shape: impl AsRef<[usize]>, values: &'a [T]) -> Result<Self, TensorError> {
        let shape = Strided::of_len(shape.as_ref(), values.len())?;
        // SAFETY: `len` values, borrowed for `'a`.
        Ok(unsafe { TensorView::over(values.as_ptr().cast_mut(), shape, None) })
    }

    /// The elements, if they lie one after the other in row-major order. On a device: of a copy of the whole tensor, which
    /// stays until the tensor is borrowed mutably.
    ///
    /// # Panics
    /// If the device fails.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        let start = match self.owner.and_then(|b| b.remote().map(|r| (b, r))) {
            None => self.start.cast_const(),
            Some((buffer, remote)) => {
                let mirror = remote.mirror().unwrap_or_else(|e| panic!("{e}"));
                mirror.wrapping_add(self.start.addr() - buffer.ptr().addr()).cast()
            }
        };
        // SAFETY: `len` elements from `start` on, borrowed for `'a`.
        self.shape.is_row_major().then(|| unsafe { std::slice::from_raw_parts(start, self.len()) })
    }
}

impl<'a, T: Elem> TensorViewMut<'a, T> {
    /// Values of the host's, in row-major order, without a copy.
    pub fn of(shape: impl AsRef<[usize]>, values: &'a mut [T]) -> Result<Self, TensorError> {
        let shape = Strided::of_len(shape.as_ref(), values.len())?;
        // SAFETY: `len` values, borrowed mutably for `'a`.
        Ok(unsafe { TensorViewMut::over(values.as_mut_ptr(), shape, None) })
    }

    /// The same elements, to read.
    pub fn as_view(&self) -> TensorView<'_, T> {
        // SAFETY: borrowed for as long as `self` is.
        unsafe { TensorView::over(self.start, self.shape, self.owner) }
    }

    /// The same view for a shorter time, to go on with this one afterwards.
    pub fn reborrow(&mut self) -> TensorViewMut<'_, T> {
        TensorViewMut { start: self.start, shape: self.shape, owner: self.owner, borrow: PhantomData }
    }

    /// Two views that can be written at the same time: the elements before `at` on an axis, and the others.
    pub fn split_at(self, axis: usize, at: usize) -> Result<(TensorViewMut<'a, T>, TensorViewMut<'a, T>), TensorError> {
        let end = self.shape.extents().get(axis).copied().unwrap_or_default();
        let (left, right) = (self.shape.slice(axis, 0..at)?, self.shape.slice(axis, at..end)?);
        let again = TensorViewMut { start: self.start, shape: self.shape, owner: self.owner, borrow: PhantomData };
        // The two share no element, since no two indices of a writable view lead to the same one.
        Ok((again.part(left), self.part(right)))
    }

    /// Sets the elements, in row-major order.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<(), TensorError> {
        if values.len() != self.len() {
            let shape = self.shape().to_vec();
            return Err(TensorError::Length { shape, expected: self.len(), found: values.len() });
        }
        if let Some(buffer) = self.owner {
            buffer.set_written(true);
            if buffer.remote().is_some() {
                return remote::write(buffer, self.start, self.shape, values);
            }
        }
        if self.shape.is_row_major() {
            // SAFETY: `len` elements from `start` on, which nobody else reaches; no part of `values`, which is borrowed.
            unsafe { self.start.copy_from_nonoverlapping(values.as_ptr(), values.len()) };
            return Ok(());
        }
        for (v, i) in values.iter().zip(self.shape.indices()) {
            // SAFETY: indices of the view lead to its elements.
            unsafe { self.start.offset(self.shape.offset(&i)).write(*v) };
        }
        Ok(())
    }
}
