//! Packed weight matrices.

use super::{TensorError, TensorView, TensorViewMut, strided::Strided};
use crate::{Device, memory::Buffer};
use std::{fmt, sync::Arc};
use tegula_ir::{
    Quant,
    layout::{Layout, panel::COLUMNS},
};

/// A K × N weight matrix in a format ([`Quant`]: what its blocks mean) and a layout ([`Layout`]: where they lie). Kernels
/// take `&PackedTensor` for a `Packed` parameter.
#[derive(Clone)]
pub struct PackedTensor {
    buffer: Arc<Buffer>,
    /// First byte in the buffer.
    offset: usize,
    /// Number of bytes.
    bytes: usize,
    quant: Quant,
    layout: Layout,
    k: usize,
    n: usize,
}

impl PackedTensor {
    /// A matrix of which the bytes, in `layout`, are `bytes`. They are copied.
    pub fn from_bytes(
        bytes: &[u8],
        quant: Quant,
        layout: Layout,
        k: usize,
        n: usize,
    ) -> Result<PackedTensor, TensorError> {
        let mut t = PackedTensor::zeros(quant, layout, k, n)?;
        t.write(bytes)?;
        Ok(t)
    }

    /// A matrix of zero bytes, for packing into.
    pub fn zeros(quant: Quant, layout: Layout, k: usize, n: usize) -> Result<PackedTensor, TensorError> {
        let bytes = size(quant, layout, k, n)?;
        Ok(PackedTensor { buffer: Arc::new(Buffer::try_zeroed(bytes)?), offset: 0, bytes, quant, layout, k, n })
    }

    /// A matrix that is all of a buffer, made for it.
    pub(crate) fn over(
        (quant, layout): (Quant, Layout),
        (k, n): (usize, usize),
        allocate: impl FnOnce(usize) -> Result<Buffer, TensorError>,
    ) -> Result<PackedTensor, TensorError> {
        let bytes = size(quant, layout, k, n)?;
        Ok(PackedTensor { buffer: super::fitting(allocate(bytes)?, bytes)?, offset: 0, bytes, quant, layout, k, n })
    }

    pub(super) fn in_buffer(
        buffer: Arc<Buffer>,
        offset: usize,
        quant: Quant,
        layout: Layout,
        k: usize,
        n: usize,
    ) -> Result<PackedTensor, TensorError> {
        let bytes = size(quant, layout, k, n)?;
        if offset.checked_add(bytes).is_none_or(|end| end > buffer.bytes()) {
            let problem = format!("expected {bytes} bytes from byte {offset} on, found a file of {}", buffer.bytes());
            return Err(TensorError::Packed { quant, layout: layout.name(), k, n, problem });
        }
        Ok(PackedTensor { buffer, offset, bytes, quant, layout, k, n })
    }

    /// What the blocks mean.
    pub fn quant(&self) -> Quant {
        self.quant
    }
    /// Where they lie.
    pub fn layout(&self) -> Layout {
        self.layout
    }
    /// Rows: the contracted axis.
    pub fn k(&self) -> usize {
        self.k
    }
    /// Columns: the outputs.
    pub fn n(&self) -> usize {
        self.n
    }

    pub(super) fn start(&self) -> *mut u8 {
        // Inside the buffer, as was checked when it was made.
        self.buffer.ptr().wrapping_add(self.offset)
    }

    pub(super) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The bytes. Of a matrix on a device a copy.
    ///
    /// # Panics
    /// If the device fails.
    pub fn as_bytes(&self) -> &[u8] {
        let start = match self.buffer.remote() {
            None => self.start().cast_const(),
            Some(remote) => remote.mirror().unwrap_or_else(|e| panic!("{e}")).wrapping_add(self.offset),
        };
        // SAFETY: inside the buffer, or its copy; written only through a mutable borrow of its only owner.
        unsafe { std::slice::from_raw_parts(start, self.bytes) }
    }

    /// Whether nobody else has the bytes, and they can be written.
    fn is_ours(&mut self) -> bool {
        Arc::get_mut(&mut self.buffer).is_some_and(|b| b.writable())
    }

    /// The bytes, to write them; `None` if the matrix is in a mapped file, on a device, was cloned, or is part of a graph.
    pub fn as_mut_bytes(&mut self) -> Option<&mut [u8]> {
        if !self.is_ours() || self.buffer.remote().is_some() {
            return None;
        }
        // SAFETY: as above, and nobody else has the buffer.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) })
    }

    /// Sets all bytes, wherever they lie.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), TensorError> {
        if bytes.len() != self.bytes {
            let problem = format!("expected {} bytes, found {}", self.bytes, bytes.len());
            let (quant, layout, k, n) = (self.quant, self.layout.name(), self.k, self.n);
            return Err(TensorError::Packed { quant, layout, k, n, problem });
        }
        let why = if self.buffer.writable() { TensorError::Shared } else { TensorError::ReadOnly };
        self.bytes_view_mut().ok_or(why)?.copy_from_slice(bytes)
    }

    /// A copy where `device`'s kernels reach it, in the same layout.
    pub fn to(&self, device: &Device) -> Result<PackedTensor, TensorError> {
        device.packed_from(&self.bytes_view().try_to_vec()?, self.quant, self.layout, self.k, self.n)
    }

    /// The bytes as a matrix: a row for each column of the matrix (`gguf`) or panel of columns (`panel16`).
    pub fn bytes_view(&self) -> TensorView<'_, u8> {
        // SAFETY: `bytes` bytes of the buffer, which nobody writes while `self` is borrowed.
        unsafe { TensorView::over(self.start(), self.strided(), Some(&self.buffer)) }
    }

    /// The same to write, for kernels that pack; `None` if the matrix is in a mapped file, was cloned, or is part of a graph.
    pub fn bytes_view_mut(&mut self) -> Option<TensorViewMut<'_, u8>> {
        if !self.is_ours() {
            return None;
        }
        if let Some(remote) = self.buffer.remote() {
            remote.forget_mirrors();
        }
        // SAFETY: as above, and nobody else has the buffer.
        Some(unsafe { TensorViewMut::over(self.start(), self.strided(), Some(&self.buffer)) })
    }

    /// One row of bytes for each independent part of the layout: a column's blocks (`gguf`), a panel of columns (`panel16`).
    fn strided(&self) -> Strided {
        let rows = match self.layout {
            Layout::Gguf => self.n,
            Layout::Panel16 => self.n.div_ceil(COLUMNS),
        };
        // The product is `bytes`, which fits in memory.
        Strided::row_major(&[rows, self.bytes / rows.max(1)]).unwrap_or_else(|_| Strided::line(self.bytes))
    }

    /// The value of element (k, n): 0 outside the matrix. Slow: for tests and for looking at single values.
    pub fn decode(&self, k: usize, n: usize) -> f32 {
        self.layout.decode(self.quant, self.as_bytes(), (self.k, self.n), k, n)
    }
}

impl fmt::Debug for PackedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedTensor<{}, {}>[{}, {}]", self.quant, self.layout.name(), self.k, self.n)
    }
}

fn size(quant: Quant, layout: Layout, k: usize, n: usize) -> Result<usize, TensorError> {
    layout.bytes(quant, k, n).ok_or_else(|| {
        let problem = if k.is_multiple_of(quant.block()) {
            "its size overflows".into()
        } else {
            format!("expected K to be a multiple of {}", quant.block())
        };
        TensorError::Packed { quant, layout: layout.name(), k, n, problem }
    })
}
