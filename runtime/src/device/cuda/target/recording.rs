//! Recorded launches.

use super::{
    super::{CudaError, Graph},
    block::Block,
    code::Code,
    queue::Queue,
};
use crate::memory::Buffer;
use std::{
    collections::BTreeSet,
    ptr,
    sync::Arc,
    thread::{self, ThreadId},
};

/// The queues that are recorded now: none, as a rule.
#[derive(Default)]
pub(super) struct Recordings(Vec<(usize, ThreadId, Recorded)>);

/// What recorded launches use, and must stay.
#[derive(Default)]
pub(super) struct Recorded {
    /// Memory, and whether it is written.
    pub buffers: Vec<(Arc<Buffer>, bool)>,
    /// Code of each launch.
    pub code: Vec<Arc<Code>>,
}

impl Recordings {
    /// The calling thread records `queue` from now on.
    pub fn add(&mut self, queue: &Queue) {
        self.0.push((ptr::from_ref(queue).addr(), thread::current().id(), Recorded::default()));
    }

    /// What was recorded; `queue` is recorded no more.
    pub fn remove(&mut self, queue: &Queue) -> Recorded {
        let at = self.0.iter().position(|r| r.0 == ptr::from_ref(queue).addr());
        at.map(|i| self.0.swap_remove(i).2).unwrap_or_default()
    }

    /// Whether nothing is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `queue` is recorded.
    pub fn has(&self, queue: &Queue) -> bool {
        self.0.iter().any(|r| r.0 == ptr::from_ref(queue).addr())
    }

    /// Whether another thread records `queue`.
    pub fn by_another(&self, queue: &Queue) -> bool {
        self.0.iter().any(|r| r.0 == ptr::from_ref(queue).addr() && r.1 != thread::current().id())
    }

    /// What is recorded on `queue`.
    pub fn of(&mut self, queue: &Queue) -> Option<&mut Recorded> {
        self.0.iter_mut().find(|r| r.0 == ptr::from_ref(queue).addr()).map(|r| &mut r.2)
    }

    /// What is put into `queue`, which nobody records, from now on waits for all work that `other` has by now. What is
    /// recorded is no work: the marker of a queue that is recorded is where its work ended.
    pub fn wait(&self, queue: &Queue, other: &Queue) -> Result<(), CudaError> {
        if !self.has(other) {
            other.marker.record(&other.stream)?;
        }
        // A wait is about the marker as it is now: it may be recorded again afterwards.
        queue.stream.wait(&other.marker)
    }
}

/// Recorded launches, with all that they use.
pub struct Recording {
    graph: Graph,
    recorded: Recorded,
    /// For errors.
    label: Arc<str>,
}

impl Recording {
    pub(super) fn new(graph: Graph, mut recorded: Recorded) -> Recording {
        // Each buffer once: written if any launch writes it.
        recorded.buffers.sort_by_key(|(b, _)| Arc::as_ptr(b).addr());
        recorded.buffers.dedup_by(|(again, written), (first, mutable)| {
            let same = Arc::ptr_eq(again, first);
            *mutable |= same && *written;
            same
        });
        let kernels: BTreeSet<&str> = recorded.code.iter().map(|c| &*c.name).collect();
        let label = format!("a graph of {}", kernels.into_iter().collect::<Vec<_>>().join(", "));
        Recording { graph, recorded, label: label.into() }
    }

    /// Puts all of them into a queue, after the work that they must follow.
    pub fn launch(&self, queue: &Arc<Queue>) -> Result<(), CudaError> {
        if !Arc::ptr_eq(queue.stream.gpu(), self.graph.gpu()) {
            return Err(CudaError::Usage(format!("the graph was recorded on {:?}", self.graph.gpu())));
        }
        let block = |buffer: &Arc<Buffer>| buffer.remote()?.downcast::<Block>().map(|b| b.slot);
        let used = || self.recorded.buffers.iter().filter_map(|(b, mutable)| Some((block(b)?, *mutable)));
        // The host may look into tensors that the graph writes: that goes on first.
        let mut uses = queue.order.enter_when(queue, |uses| !used().any(|(b, mutable)| mutable && uses.of(b).held > 0));
        if uses.recordings.has(queue) {
            return Err(CudaError::Usage("a graph cannot be launched while the stream is recorded".into()));
        }
        let launched = used()
            .try_for_each(|(b, mutable)| if mutable { uses.write(b, queue) } else { uses.read(b, queue) })
            // SAFETY: memory and code are held; the launches follow what else uses that memory; the lock is held, so that
            // nobody launches the graph at the same time.
            .and_then(|()| unsafe { self.graph.launch(&queue.stream) });
        queue.order.recent().add(queue, &self.label);
        launched.map_err(|e| queue.order.explain(e))
    }
}
