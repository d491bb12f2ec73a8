//! Which queues have work under way on a block of memory. Work on one queue runs in order anyway; this is about several: a
//! reader waits for the last writer, a writer for all readers since, and for the writer before.
//!
//! The usual case, one queue, costs a comparison. A queue that has waited for a writer is noted among the readers, and
//! waits no second time. See `order` for the lock around all of this.

use super::{
    super::CudaError,
    queue::Queue,
    recording::{Recorded, Recordings},
};
use std::sync::Arc;

/// So many readers of a block are noted before those that have nothing left to do are forgotten.
const READERS: usize = 8;

/// The uses of all blocks of a device, by slot, and what is recorded now.
#[derive(Default)]
pub(super) struct Uses {
    slots: Vec<Use>,
    free: Vec<usize>,
    pub recordings: Recordings,
}

/// The uses of a block.
#[derive(Default)]
pub(super) struct Use {
    writer: Option<Arc<Queue>>,
    /// Since it was written last.
    readers: Vec<Arc<Queue>>,
    /// How often it was written.
    pub version: u64,
    /// So many copies from and to the host are about to be put into the main queue, or are under way: no other queue writes
    /// it meanwhile.
    pub held: usize,
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
    pub fn of(&mut self, slot: usize) -> &mut Use {
        &mut self.slots[slot]
    }

    /// All queues that are noted.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut all: Vec<_> = self.slots.iter().flat_map(|u| u.writer.iter().chain(&u.readers)).cloned().collect();
        all.sort_by_key(|q| Arc::as_ptr(q).addr());
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }

    /// Lets `queue`, which nobody records, read a block with what is put in next.
    pub fn read(&mut self, slot: usize, queue: &Arc<Queue>) -> Result<(), CudaError> {
        self.slots[slot].read(queue, &self.recordings)
    }

    /// Lets `queue`, which nobody records, write a block with what is put in next.
    pub fn write(&mut self, slot: usize, queue: &Arc<Queue>) -> Result<(), CudaError> {
        self.slots[slot].write(queue, &self.recordings)
    }

    /// What this thread records on `queue`, if it does.
    pub fn recorded(&mut self, queue: &Queue) -> Option<&mut Recorded> {
        self.recordings.of(queue)
    }
}

impl Use {
    fn read(&mut self, queue: &Arc<Queue>, recordings: &Recordings) -> Result<(), CudaError> {
        if self.readers.iter().any(|r| Arc::ptr_eq(r, queue)) {
            return Ok(());
        }
        if let Some(writer) = self.writer.as_ref().filter(|w| !Arc::ptr_eq(w, queue)) {
            recordings.wait(queue, writer)?;
        }
        if self.readers.len() >= READERS {
            // Asking a stream that is recorded would spoil the recording.
            self.readers.retain(|r| recordings.has(r) || !matches!(r.stream.is_idle(), Ok(true)));
        }
        self.readers.push(queue.clone());
        Ok(())
    }

    fn write(&mut self, queue: &Arc<Queue>, recordings: &Recordings) -> Result<(), CudaError> {
        self.others(queue).try_for_each(|other| recordings.wait(queue, other))?;
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

    /// Who used it last, as far as is known.
    pub fn last(&self) -> Option<&Arc<Queue>> {
        self.readers.last().or(self.writer.as_ref())
    }
}
