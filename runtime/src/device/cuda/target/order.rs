//! The lock around the order of all work on a device.
//!
//! It is held from ordering a piece of work after others until it is in its stream, so that nobody sees one without the
//! other, and while a recording begins and ends, so that a launch is either recorded, with all that it uses, or run. While
//! a thread records a queue, what other threads want to put in waits for the recording's end.

use super::{super::CudaError, queue::Queue, recent::Recent, uses::Uses};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What is ordered, and the lock.
#[derive(Default)]
pub(super) struct Order {
    uses: Mutex<Uses>,
    /// A recording has ended, or a copy of the host's.
    changed: Condvar,
    /// The kernels that were launched last, for errors. Locked on its own, also while `uses` is.
    recent: Mutex<Recent>,
}

impl Order {
    /// The lock, for what concerns no queue that may be recorded.
    pub fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, once no other thread records `queue`.
    pub fn enter(&self, queue: &Queue) -> MutexGuard<'_, Uses> {
        self.enter_when(queue, |_| true)
    }

    /// The same, once `ready` holds, too.
    pub fn enter_when(&self, queue: &Queue, mut ready: impl FnMut(&mut Uses) -> bool) -> MutexGuard<'_, Uses> {
        let mut uses = self.uses();
        while uses.recordings.by_another(queue) || !ready(&mut uses) {
            uses = self.changed.wait(uses).unwrap_or_else(PoisonError::into_inner);
        }
        uses
    }

    /// Lets those that wait look again.
    pub fn changed(&self) {
        self.changed.notify_all();
    }

    /// The kernels that were launched last.
    pub fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error, with the kernels that may be at fault when it is about one that was launched before.
    pub fn explain(&self, error: CudaError) -> CudaError {
        if matches!(error, CudaError::Fault { .. }) || !error.is_fault() {
            return error;
        }
        CudaError::Fault { kernels: self.recent().names(), error: Box::new(error) }
    }
}

/// Runs a copy between the host and a block in the device's main queue, after `begin` has ordered it: until it is done,
/// other queues write the block no more.
pub(super) fn hold<R>(
    order: &Arc<Order>,
    slot: usize,
    begin: impl FnOnce(&mut Uses) -> Result<(), CudaError>,
    copy: impl FnOnce() -> Result<R, CudaError>,
) -> Result<R, CudaError> {
    let mut uses = order.uses();
    begin(&mut uses)?;
    uses.of(slot).held += 1;
    drop(uses);
    let done = copy();
    order.uses().of(slot).held -= 1;
    order.changed();
    done
}
