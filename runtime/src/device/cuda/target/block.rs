//! Memory of tensors.

use super::{
    super::{CudaError, Memory},
    Shared,
    uses::Use,
};
use crate::{device::DeviceError, memory::DeviceMemory};
use std::{
    mem::ManuallyDrop,
    sync::{Arc, MutexGuard, PoisonError},
};

/// A block of a GPU's memory, freed when the work that uses it is done.
pub(super) struct Block {
    memory: ManuallyDrop<Memory>,
    /// In [`Shared::uses`].
    pub slot: usize,
    pub shared: Arc<Shared>,
}

/// The driver's number for memory that there is not.
const OUT_OF_MEMORY: u32 = 2;

impl Block {
    /// `bytes` bytes, zeros or unspecified.
    pub fn new(shared: &Arc<Shared>, bytes: usize, zeroed: bool) -> Result<Block, DeviceError> {
        let main = &shared.main;
        let allocate = || Memory::new(&main.stream, bytes);
        let memory = match allocate() {
            // What is about to be freed may be enough.
            Err(e) if e.code() == Some(OUT_OF_MEMORY) => shared.wait_for_all().and_then(|()| allocate()),
            memory => memory,
        };
        let memory = memory.map_err(|e| shared.error(shared.out_of_memory(e, bytes)))?;
        if zeroed {
            memory.fill(&main.stream, 0, 0, bytes).map_err(|e| shared.error(e))?;
        }
        let mut uses = shared.uses();
        let slot = uses.add();
        let block = Block { memory: ManuallyDrop::new(memory), slot, shared: shared.clone() };
        // It is there from here on in the main queue: others wait for that.
        uses.write(slot, main).map_err(|e| shared.error(e))?;
        drop(uses);
        Ok(block)
    }

    fn failed(&self, error: CudaError) -> DeviceError {
        self.shared.error(error)
    }
}

impl Shared {
    pub(super) fn uses(&self) -> MutexGuard<'_, super::uses::Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until what is freed behind the work of all queues is free.
    fn wait_for_all(&self) -> Result<(), CudaError> {
        let queues = self.uses().queues();
        queues.iter().filter(|q| !q.is_recording()).try_for_each(|q| q.synchronize())?;
        self.main.synchronize()
    }

    fn out_of_memory(&self, error: CudaError, bytes: usize) -> CudaError {
        if error.code() != Some(OUT_OF_MEMORY) {
            return error;
        }
        let (free, all) = (self.gpu.free_bytes().unwrap_or(0), self.gpu.memory_bytes());
        CudaError::Usage(format!(
            "no memory for {bytes} bytes: of {} MiB, {} MiB are free (`nvidia-smi` shows who uses the rest)",
            all >> 20,
            free >> 20
        ))
    }
}

impl DeviceMemory for Block {
    fn place(&self) -> String {
        self.shared.place()
    }

    fn address(&self) -> u64 {
        self.memory.address()
    }

    fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    fn version(&self) -> u64 {
        self.shared.uses().of(self.slot).version
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        // Behind the last writer, in its own queue.
        let writer = self.shared.uses().of(self.slot).writer().cloned();
        let queue = writer.as_ref().unwrap_or(&self.shared.main);
        if queue.is_recording() {
            return Err(self.failed(CudaError::Usage("it was written by a stream that is recorded now".into())));
        }
        self.memory.read(&queue.stream, offset, to).map_err(|e| self.failed(e))
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        if from.is_empty() {
            return Ok(());
        }
        let main = &self.shared.main;
        let mut staging = self.shared.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let mut uses = self.shared.uses();
        let written = uses.write(self.slot, main).and_then(|()| {
            if staging.takes(from) {
                return staging.write(&main.stream, &self.memory, offset, from);
            }
            // SAFETY: borrowed until the copy is done, below.
            unsafe { self.memory.write_later(&main.stream, offset, from) }
        });
        drop(uses);
        let waited = if staging.takes(from) { Ok(()) } else { main.stream.synchronize() };
        written.and(waited).map_err(|e| self.failed(e))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let used: Use = self.shared.uses().remove(self.slot);
        // Freed in the queue that used it last, which waits for the others.
        let last = used.last().filter(|q| !q.is_recording()).unwrap_or(&self.shared.main);
        // A queue that fails has nothing left to do.
        let _ = used.others(last).try_for_each(|other| last.wait_for(other));
        self.memory.free_in(&last.stream);
        // SAFETY: dropped nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.memory) };
    }
}
