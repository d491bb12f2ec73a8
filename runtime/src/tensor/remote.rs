//! Elements on a device, as the host reads and writes them.

use super::{TensorError, strided::Strided};
use crate::memory::{Buffer, DeviceMemory};
use std::sync::Arc;
use tegula_lang::Elem;

/// The memory, and the byte in it that `start` is.
fn place<T>(buffer: &Arc<Buffer>, start: *mut T) -> Option<(&dyn DeviceMemory, isize)> {
    let remote = buffer.remote()?;
    Some((remote.memory(), start.addr() as isize - buffer.ptr().addr() as isize))
}

/// The elements of a view in row-major order.
pub(super) fn read<T: Elem>(buffer: &Arc<Buffer>, start: *mut T, shape: Strided) -> Result<Vec<T>, TensorError> {
    let (Some((memory, at)), Some((low, high))) = (place(buffer, start), shape.reach()) else { return Ok(vec![]) };
    let size = size_of::<T>();
    let n = (high - low + 1) as usize;
    let mut span = Vec::<T>::with_capacity(n);
    // SAFETY: room for n elements, of which every byte is set before they count; zeros are a value of every element type.
    unsafe {
        let bytes = span.as_mut_ptr().cast::<u8>();
        bytes.write_bytes(0, n * size);
        memory.read((at + low * size as isize) as usize, std::slice::from_raw_parts_mut(bytes, n * size))?;
        span.set_len(n);
    }
    if shape.is_row_major() {
        return Ok(span);
    }
    Ok(shape.indices().map(|i| span[(shape.offset(&i) - low) as usize]).collect())
}

/// Sets the elements of a view, in row-major order, and none between them.
pub(super) fn write<T: Elem>(
    buffer: &Arc<Buffer>,
    start: *mut T,
    shape: Strided,
    values: &[T],
) -> Result<(), TensorError> {
    let Some((memory, at)) = place(buffer, start).filter(|_| !values.is_empty()) else { return Ok(()) };
    let run = if shape.is_row_major() { values.len() } else { shape.run() };
    for (values, first) in values.chunks_exact(run).zip(shape.indices().step_by(run)) {
        let offset = at + shape.offset(&first) * size_of::<T>() as isize;
        // SAFETY: the bytes of these elements, which have no padding.
        let bytes = unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) };
        memory.write(offset as usize, bytes)?;
    }
    Ok(())
}
