//! Memory of a GPU, and memory of the host that a GPU copies from and to by itself.

use super::{CudaError, Gpu, Stream, driver::call};
use cudarc::driver::sys;
use std::{
    ops::{Deref, DerefMut, Range},
    ptr::{self, NonNull},
    sync::{Arc, Mutex, PoisonError},
};

/// A block of a GPU's memory. Allocating and freeing are work in a stream: it is there for what is put into that stream
/// afterwards, and freed after what was put in before. Safe functions take that stream alone; elsewhere ordering is the
/// caller's, and `unsafe`.
pub struct Memory {
    address: u64,
    bytes: usize,
    gpu: Arc<Gpu>,
    /// Where it is used, and freed.
    stream: Mutex<Arc<Stream>>,
}

impl Memory {
    /// `bytes` bytes of unspecified contents, freed in the same stream unless [`Memory::free_in`] says otherwise.
    pub fn new(stream: &Arc<Stream>, bytes: usize) -> Result<Memory, CudaError> {
        let gpu = stream.gpu();
        gpu.bind()?;
        let mut address = 0;
        // SAFETY: the driver writes an address. It refuses 0 bytes.
        unsafe { call!(cuMemAllocAsync(&mut address, bytes.max(1), stream.raw()))? };
        Ok(Memory { address, bytes, gpu: gpu.clone(), stream: Mutex::new(stream.clone()) })
    }

    /// The first byte's address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// From now on it is used in `stream`, and freed, when it is dropped, after what is in there by then.
    ///
    /// # Safety
    /// What uses the memory, its allocation included, comes before what is put into `stream` from now on.
    pub unsafe fn free_in(&self, stream: &Arc<Stream>) {
        *self.stream.lock().unwrap_or_else(PoisonError::into_inner) = stream.clone();
    }

    /// Writes `bytes` from byte `offset` on, after what is in `stream`, and waits for it.
    pub fn write(&self, stream: &Stream, offset: usize, bytes: &[u8]) -> Result<(), CudaError> {
        self.check(stream)?;
        // SAFETY: borrowed until the copy is done; the memory's own stream.
        unsafe { self.write_later(stream, offset, bytes)? };
        stream.synchronize()
    }

    /// Writes `bytes` from byte `offset` on, after what is in `stream`.
    ///
    /// # Safety
    /// `bytes` stay as they are until the copy is done; the memory is there as long as that.
    pub unsafe fn write_later(&self, stream: &Stream, offset: usize, bytes: &[u8]) -> Result<(), CudaError> {
        let at = self.range(offset, bytes.len())?;
        self.gpu.bind()?;
        // SAFETY: inside the block; the bytes as this function's contract says.
        unsafe { call!(cuMemcpyHtoDAsync_v2(at.start, bytes.as_ptr().cast(), bytes.len(), stream.raw())) }
    }

    /// Reads from byte `offset` on, after what is in `stream`, and waits for it.
    pub fn read(&self, stream: &Stream, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        self.check(stream)?;
        // SAFETY: borrowed until the copy is done; the memory's own stream.
        unsafe { self.read_later(stream, offset, to)? };
        stream.synchronize()
    }

    /// Reads from byte `offset` on, after what is in `stream`.
    ///
    /// # Safety
    /// Nobody touches `to` until the copy is done; the memory is there as long as that.
    pub unsafe fn read_later(&self, stream: &Stream, offset: usize, to: &mut [u8]) -> Result<(), CudaError> {
        let at = self.range(offset, to.len())?;
        self.gpu.bind()?;
        // SAFETY: inside the block; the destination as this function's contract says.
        unsafe { call!(cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), at.start, to.len(), stream.raw())) }
    }

    /// Sets `bytes` bytes from byte `offset` on, after what is in `stream`.
    pub fn fill(&self, stream: &Stream, offset: usize, value: u8, bytes: usize) -> Result<(), CudaError> {
        self.check(stream)?;
        let at = self.range(offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: inside the block.
        unsafe { call!(cuMemsetD8Async(at.start, value, bytes, stream.raw())) }
    }

    /// Copies `bytes` bytes of another block of the same stream, after what is in `stream`.
    pub fn copy_from(
        &self,
        stream: &Stream,
        offset: usize,
        from: &Memory,
        from_offset: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        self.check(stream)?;
        from.check(stream)?;
        let (to, from) = (self.range(offset, bytes)?, from.range(from_offset, bytes)?);
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: inside both blocks.
        unsafe { call!(cuMemcpyDtoDAsync_v2(to.start, from.start, bytes, stream.raw())) }
    }

    /// That it is used in `stream`.
    fn check(&self, stream: &Stream) -> Result<(), CudaError> {
        if ptr::eq(&**self.stream.lock().unwrap_or_else(PoisonError::into_inner), stream) {
            return Ok(());
        }
        Err(CudaError::Usage(format!(
            "a block of memory of cuda:{} is used in another stream than that in which it is allocated and freed",
            self.gpu.ordinal()
        )))
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<Range<u64>, CudaError> {
        match offset.checked_add(bytes).filter(|end| *end <= self.bytes) {
            Some(end) => Ok(self.address + offset as u64..self.address + end as u64),
            None => Err(CudaError::Usage(format!(
                "bytes {offset}.. of {bytes} bytes are not in a block of {} bytes of cuda:{}",
                self.bytes,
                self.gpu.ordinal()
            ))),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = self.gpu.bind();
        // SAFETY: allocated in `new`; nobody uses it afterwards.
        let _ = unsafe { call!(cuMemFreeAsync(self.address, stream.raw())) };
    }
}

/// Memory of the host that stays in place, so that GPUs copy from and to it while the host does something else.
pub struct Pinned {
    start: NonNull<u8>,
    bytes: usize,
    gpu: Arc<Gpu>,
}

// SAFETY: plain memory that it owns.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `bytes` zero bytes.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Pinned, CudaError> {
        gpu.bind()?;
        let mut start = ptr::null_mut();
        // Every context may copy from it.
        // SAFETY: the driver writes an address.
        unsafe { call!(cuMemHostAlloc(&mut start, bytes.max(1), sys::CU_MEMHOSTALLOC_PORTABLE))? };
        let start =
            NonNull::new(start.cast()).ok_or_else(|| CudaError::Usage("cuMemHostAlloc gave no memory".into()))?;
        // SAFETY: as many bytes were allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { start, bytes, gpu: gpu.clone() })
    }
}

impl Deref for Pinned {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` bytes that were written in `new`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pinned {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Copies may be under way.
        let _ = self.gpu.synchronize();
        // SAFETY: allocated in `new`; nobody uses it afterwards.
        let _ = unsafe { call!(cuMemFreeHost(self.start.as_ptr().cast())) };
    }
}
