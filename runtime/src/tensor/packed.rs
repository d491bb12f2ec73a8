//! Packed weight matrices.

use super::{TensorError, TensorView, TensorViewMut, strided::Strided};
use crate::memory::Buffer;
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
        if t.bytes != bytes.len() {
            let problem = format!("expected {} bytes, found {}", t.bytes, bytes.len());
            return Err(TensorError::Packed { quant, layout: layout.name(), k, n, problem });
        }
        if let Some(to) = t.as_mut_bytes() {
            to.copy_from_slice(bytes);
        }
        Ok(t)
    }

    /// A matrix of zero bytes, for packing into.
    pub fn zeros(quant: Quant, layout: Layout, k: usize, n: usize) -> Result<PackedTensor, TensorError> {
        let bytes = size(quant, layout, k, n)?;
        Ok(PackedTensor { buffer: Arc::new(Buffer::try_zeroed(bytes)?), offset: 0, bytes, quant, layout, k, n })
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
        // SAFETY: inside the buffer, as was checked when it was made.
        unsafe { self.buffer.ptr().add(self.offset) }
    }

    pub(super) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: inside the buffer; written only through a mutable borrow of its only owner.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    /// The bytes, to write them; `None` if the tensor is in a mapped file or was cloned.
    pub fn as_mut_bytes(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.buffer).filter(|b| b.writable())?;
        // SAFETY: as above, and nobody else has the buffer.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) })
    }

    /// The bytes as a matrix: a row for each column of the matrix (`gguf`) or panel of columns (`panel16`).
    pub fn bytes_view(&self) -> TensorView<'_, u8> {
        // SAFETY: `bytes` bytes of the buffer, which nobody writes while `self` is borrowed.
        unsafe { TensorView::over(self.start(), self.strided(), Some(&self.buffer)) }
    }

    /// The same to write, for kernels that pack; `None` as [`PackedTensor::as_mut_bytes`].
    pub fn bytes_view_mut(&mut self) -> Option<TensorViewMut<'_, u8>> {
        self.as_mut_bytes()?;
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
