//! Tensors: typed arrays in memory that kernels read and write.
//!
//! - [`Tensor`] owns its elements, in row-major order;
//! - [`TensorView`] and [`TensorViewMut`] are strided parts of one, without a copy;
//! - [`PackedTensor`] is a weight matrix whose bytes only kernels understand.
//!
//! Kernels of the CPU (and of what plays one) work on tensors in the host's memory, those of a GPU on tensors in its own:
//! [`Device::zeros`](crate::Device::zeros), [`Device::tensor`](crate::Device::tensor) and [`Tensor::to`] make tensors where
//! a device's kernels reach them. Host code may look into any tensor; for one on a device that is a copy, made after the
//! work that writes it.
//!
//! A tensor has up to four axes. Rust's borrows keep tensors alive, and unchanged, while work uses them: a launch takes
//! `&Tensor` for a `View` and `&mut Tensor` for a `ViewMut`.

mod arg;
mod packed;
mod remote;
mod strided;
mod view;

pub use packed::PackedTensor;
pub use view::{TensorView, TensorViewMut};

use crate::{
    Device,
    device::DeviceError,
    memory::{Buffer, OutOfMemory},
};
use std::{fmt, io, marker::PhantomData, ops::Range, path::Path, sync::Arc};
use strided::Strided;
use tegula_lang::{Elem, launch::MAX_RANK};

/// Why there is no such tensor or view.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// Too many axes.
    #[error("expected at most {MAX_RANK} axes, found {0}")]
    Rank(usize),
    /// The number of elements does not fit the shape.
    #[error("expected {expected} elements for shape {shape:?}, found {found}")]
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// Its number of elements.
        expected: usize,
        /// Elements there are.
        found: usize,
    },
    /// More elements than memory can have.
    #[error("shape {0:?} has more elements than fit in memory")]
    TooLarge(Vec<usize>),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A range that leaves the axis, or an axis that is not there.
    #[error("axis {axis} of shape {shape:?} has no part {range:?}")]
    Range {
        /// The axis.
        axis: usize,
        /// The range.
        range: Range<usize>,
        /// The shape.
        shape: Vec<usize>,
    },
    /// Not an order of the axes.
    #[error("expected each axis of shape {shape:?} once, found {found:?}")]
    Axes {
        /// The shape.
        shape: Vec<usize>,
        /// What was given.
        found: Vec<usize>,
    },
    /// A part of a file that is not there, or not aligned to the element type.
    #[error("bytes {offset}.. of a file of {bytes} bytes hold no aligned tensor of `{elem}` of shape {shape:?}")]
    Placement {
        /// First byte.
        offset: usize,
        /// Bytes in the file.
        bytes: usize,
        /// The element type.
        elem: &'static str,
        /// The shape.
        shape: Vec<usize>,
    },
    /// A mapped file.
    #[error("a tensor in a mapped file cannot be written")]
    ReadOnly,
    /// A packed matrix that is not its owner's alone.
    #[error("a packed matrix that is shared (it was cloned, or is part of a recorded graph) cannot be written")]
    Shared,
    /// A target gave memory that does not do for a tensor.
    #[error("expected memory of {expected} bytes that can be written, found {found} bytes{}", if *.writable { "" } else { " that cannot" })]
    Unfit {
        /// Bytes needed.
        expected: usize,
        /// Bytes there are.
        found: usize,
        /// Whether they can be written.
        writable: bool,
    },
    /// A tensor in a device's memory, which the host cannot change in place.
    #[error("a tensor in the memory of {0} is no slice that can be written: use `write`, or a kernel")]
    OnDevice(String),
    /// The device has no memory, or failed.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// A packed matrix that its format or layout does not have.
    #[error("packed `{quant}` matrix of K = {k}, N = {n} in layout `{layout}`: {problem}")]
    Packed {
        /// The format.
        quant: tegula_ir::Quant,
        /// The layout.
        layout: &'static str,
        /// Rows.
        k: usize,
        /// Columns.
        n: usize,
        /// What is wrong.
        problem: String,
    },
    /// The file cannot be mapped.
    #[error(transparent)]
    Io(#[from] io::Error),
}

crate::readable_debug!(TensorError);

impl From<DeviceError> for TensorError {
    fn from(e: DeviceError) -> TensorError {
        TensorError::Device(Box::new(e))
    }
}

/// An array of `T` in row-major order, in the memory of the host or of a device.
pub struct Tensor<T> {
    buffer: Arc<Buffer>,
    /// First byte in the buffer.
    offset: usize,
    shape: Strided,
    elements: PhantomData<T>,
}

/// A file mapped read-only, from which tensors can be taken. Pages are read when they are used.
#[derive(Clone, Debug)]
pub struct MappedFile {
    buffer: Arc<Buffer>,
}

/// A buffer that a target gave for a tensor, which unsafe code then trusts.
fn fitting(buffer: Buffer, expected: usize) -> Result<Arc<Buffer>, TensorError> {
    let (found, writable) = (buffer.bytes(), buffer.writable());
    if found < expected || !writable {
        return Err(TensorError::Unfit { expected, found, writable });
    }
    Ok(Arc::new(buffer))
}

impl<T: Elem> Tensor<T> {
    fn allocate(shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        let shape = Strided::row_major(shape.as_ref())?;
        let bytes = shape.bytes::<T>()?;
        Ok(Tensor { buffer: Arc::new(Buffer::try_zeroed(bytes)?), offset: 0, shape, elements: PhantomData })
    }

    /// Zeros.
    pub fn zeros(shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        Tensor::allocate(shape)
    }

    /// For outputs: the contents are unspecified. The oracle's sanitizer reports a kernel that reads what was not written.
    pub fn empty(shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        let t = Tensor::allocate(shape)?;
        t.buffer.set_written(false);
        Ok(t)
    }

    /// As [`Tensor::empty`], but filled with what is easily seen in a result: NaN, −1, the largest unsigned number, true.
    pub fn poisoned(shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        let t = Tensor::<T>::allocate(shape)?;
        let byte = if T::ELEM == tegula_ir::Elem::Bool { 1 } else { 0xff };
        // SAFETY: all of a buffer that nobody else has yet.
        unsafe { std::ptr::write_bytes(t.buffer.ptr(), byte, t.buffer.bytes()) };
        t.buffer.set_written(false);
        Ok(t)
    }

    /// The elements of `values` in row-major order.
    pub fn from_slice(shape: impl AsRef<[usize]>, values: &[T]) -> Result<Tensor<T>, TensorError> {
        let shape = shape.as_ref();
        Strided::of_len(shape, values.len())?;
        let mut t = Tensor::allocate(shape)?;
        t.as_mut_slice()?.copy_from_slice(values);
        Ok(t)
    }

    /// The element at each index, which `f` is called with in row-major order.
    pub fn from_fn(shape: impl AsRef<[usize]>, mut f: impl FnMut(&[usize]) -> T) -> Result<Tensor<T>, TensorError> {
        let mut t = Tensor::allocate(shape)?;
        let (strided, rank) = (t.shape, t.shape.rank());
        for (slot, index) in t.as_mut_slice()?.iter_mut().zip(strided.indices()) {
            *slot = f(&index[..rank]);
        }
        Ok(t)
    }

    /// A tensor that is all of a buffer, made for it.
    pub(crate) fn over(
        shape: impl AsRef<[usize]>,
        allocate: impl FnOnce(usize) -> Result<Buffer, TensorError>,
    ) -> Result<Tensor<T>, TensorError> {
        let shape = Strided::row_major(shape.as_ref())?;
        let bytes = shape.bytes::<T>()?;
        let buffer = fitting(allocate(bytes)?, bytes)?;
        Ok(Tensor { buffer, offset: 0, shape, elements: PhantomData })
    }

    /// A copy where `device`'s kernels reach it.
    pub fn to(&self, device: &Device) -> Result<Tensor<T>, TensorError> {
        if self.buffer.remote().is_none() {
            return device.tensor(self.shape(), self.try_as_slice()?);
        }
        device.tensor(self.shape(), &self.view().try_to_vec()?)
    }

    /// Whose memory it lies in, if it is not the host's: `cuda:0`.
    pub fn place(&self) -> Option<String> {
        self.buffer.remote().map(|r| r.memory().place())
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        self.shape.extents()
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.len()
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it lies in a mapped file and cannot be written.
    pub fn is_read_only(&self) -> bool {
        !self.buffer.writable()
    }

    /// The same elements under another shape.
    pub fn reshape(self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        let shape = Strided::of_len(shape.as_ref(), self.len())?;
        Ok(Tensor { shape, ..self })
    }

    /// The first element; an address of the device's if it lies there.
    fn start(&self) -> *mut T {
        self.buffer.ptr().wrapping_add(self.offset).cast()
    }

    /// The elements in row-major order. Of a tensor on a device a copy, made when it was written since the last one.
    /// Copies stay until the tensor is borrowed mutably: where a graph writes it again and again, take
    /// [`Tensor::read_into`].
    ///
    /// # Panics
    /// If the device fails; errors of kernels that were launched before show here. See [`Tensor::try_as_slice`].
    pub fn as_slice(&self) -> &[T] {
        self.try_as_slice().unwrap_or_else(|e| panic!("{e}"))
    }

    /// The elements in row-major order. Of a tensor on a device a copy, made when it was written since the last one.
    /// Copies stay until the tensor is borrowed mutably: where a graph writes it again and again, take
    /// [`Tensor::read_into`].
    ///
    /// # Errors
    /// The device fails; errors of kernels that were launched before show here.
    pub fn try_as_slice(&self) -> Result<&[T], TensorError> {
        let start = match self.buffer.remote() {
            None => self.start().cast_const(),
            Some(remote) => remote.mirror()?.wrapping_add(self.offset).cast(),
        };
        // SAFETY: `len` initialised elements, aligned, that nobody writes while `self` is borrowed: offset and elements lie
        // in the buffer, as was checked when it was made, and a copy is as long. Every bit pattern is an element; `bool` is
        // kept to 0 and 1 by all that writes tensors.
        Ok(unsafe { std::slice::from_raw_parts(start, self.len()) })
    }

    /// The elements in row-major order; an error for a mapped file, or on a device.
    pub fn as_mut_slice(&mut self) -> Result<&mut [T], TensorError> {
        if self.is_read_only() {
            return Err(TensorError::ReadOnly);
        }
        if let Some(place) = self.place() {
            return Err(TensorError::OnDevice(place));
        }
        self.buffer.set_written(true);
        // SAFETY: as above; a writable buffer belongs to one tensor, which is borrowed mutably.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) })
    }

    /// Sets the elements, in row-major order, wherever the tensor lies; an error for a mapped file.
    pub fn write(&mut self, values: &[T]) -> Result<(), TensorError> {
        self.view_mut()?.copy_from_slice(values)
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Panics
    /// As [`Tensor::as_slice`].
    pub fn to_vec(&self) -> Vec<T> {
        self.view().to_vec()
    }

    /// Copies the elements, in row-major order, wherever the tensor lies.
    ///
    /// # Errors
    /// `to` has another length, or the device fails; errors of kernels that were launched before show here.
    pub fn read_into(&self, to: &mut [T]) -> Result<(), TensorError> {
        if to.len() != self.len() {
            let (shape, expected) = (self.shape().to_vec(), self.len());
            return Err(TensorError::Length { shape, expected, found: to.len() });
        }
        match self.buffer.remote() {
            None => to.copy_from_slice(self.try_as_slice()?),
            Some(remote) => {
                // SAFETY: the bytes of these elements, which have no padding; every bit pattern is one, and `bool` is kept
                // to 0 and 1 by all that writes tensors.
                let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
                remote.memory().read(self.offset, to)?;
            }
        }
        Ok(())
    }

    /// All of it as a view.
    pub fn view(&self) -> TensorView<'_, T> {
        // SAFETY: the elements live, and nobody writes them, as long as `self` is borrowed.
        unsafe { TensorView::over(self.start(), self.shape, Some(&self.buffer)) }
    }

    /// All of it as a view that can be written; an error for a mapped file.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_, T>, TensorError> {
        if self.is_read_only() {
            return Err(TensorError::ReadOnly);
        }
        self.forget_mirrors();
        // SAFETY: as above, and `self` is borrowed mutably.
        Ok(unsafe { TensorViewMut::over(self.start(), self.shape, Some(&self.buffer)) })
    }

    /// Frees copies for host code, which nobody borrows.
    fn forget_mirrors(&mut self) {
        if let Some(remote) = self.buffer.remote() {
            remote.forget_mirrors();
        }
    }

    /// The part `range` of an axis, as a view.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<TensorView<'_, T>, TensorError> {
        self.view().slice(axis, range)
    }

    /// The axes in reverse order, as a view.
    pub fn transposed(&self) -> TensorView<'_, T> {
        self.view().transposed()
    }
}

impl<T: Elem> TryFrom<Vec<T>> for Tensor<T> {
    type Error = TensorError;
    /// A tensor with one axis.
    fn try_from(values: Vec<T>) -> Result<Tensor<T>, TensorError> {
        Tensor::from_slice([values.len()], &values)
    }
}

impl<T: Elem> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{}>{:?}", T::ELEM, self.shape())
    }
}

impl MappedFile {
    /// Maps a file. It must not be changed while it is mapped: see [`Buffer::map_file`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<MappedFile> {
        Ok(MappedFile { buffer: Arc::new(Buffer::map_file(path.as_ref())?) })
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the whole mapping, which nothing in this process writes.
        unsafe { std::slice::from_raw_parts(self.buffer.ptr(), self.buffer.bytes()) }
    }

    /// The tensor of which the first element is at byte `offset`, little-endian as this machine. `bool` cannot be taken
    /// from a file (take `u8`).
    pub fn tensor<T: Elem>(&self, offset: usize, shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        let strided = Strided::row_major(shape.as_ref())?;
        let end = offset.checked_add(strided.bytes::<T>()?);
        let fits = end.is_some_and(|e| e <= self.buffer.bytes()) && offset.is_multiple_of(align_of::<T>());
        if !fits || T::ELEM == tegula_ir::Elem::Bool {
            let (elem, shape) = (T::ELEM.name(), shape.as_ref().to_vec());
            return Err(TensorError::Placement { offset, bytes: self.buffer.bytes(), elem, shape });
        }
        Ok(Tensor { buffer: self.buffer.clone(), offset, shape: strided, elements: PhantomData })
    }

    /// The packed matrix of which the bytes begin at byte `offset`, as they are.
    pub fn packed(
        &self,
        offset: usize,
        quant: tegula_ir::Quant,
        layout: tegula_ir::layout::Layout,
        k: usize,
        n: usize,
    ) -> Result<PackedTensor, TensorError> {
        PackedTensor::in_buffer(self.buffer.clone(), offset, quant, layout, k, n)
    }

    /// Tells the system that these bytes are not needed for a while; they are read from the file again when they are.
    pub fn drop_pages(&self, range: Range<usize>) {
        self.buffer.drop_pages(range.start, range.len())
    }
}
