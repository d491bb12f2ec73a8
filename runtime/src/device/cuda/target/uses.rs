//! Which queues have work under way on a block of memory. Work on one queue runs in order anyway; this is about several: a
//! reader waits for the last writer, a writer for all readers since, and for the writer before.
//!
//! The usual case, one queue, costs a comparison. A queue that has waited for a writer is noted among the readers, and
//! waits no second time.

use super::{super::CudaError, queue::Queue};
use std::sync::Arc;

/// So many readers of a block are noted before those that have nothing left to do are forgotten.
const READERS: usize = 8;

/// The uses of all blocks of a device, by slot.
#[derive(Default)]
pub(super) struct Uses {
    slots: Vec<Use>,
    free: Vec<usize>,
}

/// The uses of a block.
#[derive(Default)]
pub(super) struct Use {
    writer: Option<Arc<Queue>>,
    /// Since it was written last.
    readers: Vec<Arc<Queue>>,
    /// How often it was written.
    pub version: u64,
}

impl Uses {
    /// A slot for a new block.
    pub fn add(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.slots.push(Use::default());
            self.slots.len() - 1
        })
    }

    /// Gives a slot back.
    pub fn remove(&mut self, slot: usize) -> Use {
        self.free.push(slot);
        std::mem::take(&mut self.slots[slot])
    }

    /// The uses of a block.
    pub fn of(&self, slot: usize) -> &Use {
        &self.slots[slot]
    }

    /// All queues that are noted.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<_> = self.slots.iter().flat_map(|u| u.writer.iter().chain(&u.readers)).cloned().collect();
        all.sort_by_key(|q| Arc::as_ptr(q).addr());
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    /// Lets `queue` read a block with what is put in next.
    pub fn read(&mut self, slot: usize, queue: &Arc<Queue>) -> Result<(), CudaError> {
        self.slots[slot].read(queue)
    }

    /// Lets `queue` write a block with what is put in next.
    pub fn write(&mut self, slot: usize, queue: &Arc<Queue>) -> Result<(), CudaError> {
        self.slots[slot].write(queue)
    }
}

impl Use {
    fn read(&mut self, queue: &Arc<Queue>) -> Result<(), CudaError> {
        if self.readers.iter().any(|r| Arc::ptr_eq(r, queue)) {
            return Ok(());
        }
        if let Some(writer) = self.writer.as_ref().filter(|w| !Arc::ptr_eq(w, queue)) {
            queue.wait_for(writer)?;
        }
        if self.readers.len() >= READERS {
            self.readers.retain(|r| !matches!(r.stream.is_idle(), Ok(true)));
        }
        self.readers.push(queue.clone());
        Ok(())
    }

    fn write(&mut self, queue: &Arc<Queue>) -> Result<(), CudaError> {
        self.others(queue).try_for_each(|other| queue.wait_for(other))?;
        self.readers.clear();
        if self.writer.as_ref().is_none_or(|w| !Arc::ptr_eq(w, queue)) {
            self.writer = Some(queue.clone());
        }
        self.version += 1;
        Ok(())
    }

    /// The queues that use it, but `queue`.
    pub fn others<'a>(&'a self, queue: &'a Arc<Queue>) -> impl Iterator<Item = &'a Arc<Queue>> {
        self.writer.iter().chain(&self.readers).filter(move |q| !Arc::ptr_eq(q, queue))
    }

    /// Who wrote it last.
    pub fn writer(&self) -> Option<&Arc<Queue>> {
        self.writer.as_ref()
    }

    /// Who used it last, as far as is known.
    pub fn last(&self) -> Option<&Arc<Queue>> {
        self.readers.last().or(self.writer.as_ref())
    }
}
