//! Memory of tensors.

use super::{
    super::{CudaError, Memory},
    Shared,
    order::hold,
};
use crate::{device::DeviceError, memory::DeviceMemory};
use std::{
    mem::ManuallyDrop,
    sync::{Arc, PoisonError},
};

/// A block of a GPU's memory, freed when the work that uses it is done.
pub(super) struct Block {
    memory: ManuallyDrop<Memory>,
    /// In [`Order::uses`](super::order::Order::uses).
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
        let mut uses = shared.order.uses();
        let slot = uses.add();
        // It is there from here on in the main queue: others wait for that.
        let noted = uses.write(slot, main);
        drop(uses);
        let block = Block { memory: ManuallyDrop::new(memory), slot, shared: shared.clone() };
        noted.map(|()| block).map_err(|e| shared.error(e))
    }

    fn failed(&self, error: CudaError) -> DeviceError {
        self.shared.error(error)
    }
}

impl Shared {
    /// Waits until what is freed behind the work of all queues is free.
    fn wait_for_all(&self) -> Result<(), CudaError> {
        let uses = self.order.uses();
        let queues = uses.queues();
        let others = queues.iter().filter(|q| !Arc::ptr_eq(q, &self.main));
        others.into_iter().try_for_each(|q| uses.recordings.wait(&self.main, q))?;
        drop(uses);
        self.main.synchronize()
    }

    fn out_of_memory(&self, error: CudaError, bytes: usize) -> CudaError {
        if error.code() != Some(OUT_OF_MEMORY) {
            return error;
        }
        // What this process freed stays with it, for its next allocations.
        let kept = self.gpu.kept_bytes().unwrap_or(0);
        let (free, all) = (self.gpu.free_bytes().unwrap_or(0) + kept, self.gpu.memory_bytes());
        CudaError::Usage(format!(
            "no memory for {bytes} bytes: of {} MiB, {} MiB are free (`nvidia-smi` shows who uses the rest){}",
            all >> 20,
            free >> 20,
            if free > bytes { ", but not in one piece" } else { "" }
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
        self.shared.order.uses().of(self.slot).version
    }

    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        let Shared { main, order, .. } = &*self.shared;
        let begin = |uses: &mut super::uses::Uses| uses.read(self.slot, main);
        hold(order, self.slot, begin, || self.memory.read(&main.stream, offset, to)).map_err(|e| self.failed(e))
    }

    fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        if from.is_empty() {
            return Ok(());
        }
        let Shared { main, order, staging, .. } = &*self.shared;
        let mut staging = staging.lock().unwrap_or_else(PoisonError::into_inner);
        let written = if staging.takes(from) {
            staging.make_room(&main.stream, from.len()).and_then(|()| {
                let mut uses = order.uses();
                uses.write(self.slot, main)?;
                staging.write(&main.stream, &self.memory, offset, from)
            })
        } else {
            drop(staging);
            let begin = |uses: &mut super::uses::Uses| uses.write(self.slot, main);
            hold(order, self.slot, begin, || self.memory.write(&main.stream, offset, from))
        };
        written.map_err(|e| self.failed(e))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Shared { main, order, .. } = &*self.shared;
        let mut uses = order.uses();
        let used = uses.remove(self.slot);
        // Freed in the queue that used it last, which waits for the others. The lock is held, so that nobody begins to
        // record that queue meanwhile.
        let last = used.last().filter(|q| !uses.recordings.has(q)).unwrap_or(main);
        let mut ordered = true;
        for other in used.others(last) {
            ordered &= uses.recordings.wait(last, other).is_ok();
        }
        // A wait fails where nothing works any more: then the memory stays, which is safe.
        if ordered {
            // SAFETY: `last` comes after all that uses the memory; dropped nowhere else.
            unsafe {
                self.memory.free_in(&last.stream);
                ManuallyDrop::drop(&mut self.memory);
            }
        }
        drop(uses);
    }
}
