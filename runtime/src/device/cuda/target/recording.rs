//! Recorded launches.

use super::{
    super::{CudaError, Graph},
    block::Block,
    queue::{Queue, Recorded},
};
use std::sync::Arc;

/// Recorded launches, with all that they use.
pub struct Recording {
    graph: Graph,
    recorded: Recorded,
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
        Recording { graph, recorded }
    }

    /// Puts all of them into a queue, after the work that they must follow.
    pub fn launch(&self, queue: &Arc<Queue>) -> Result<(), CudaError> {
        if !Arc::ptr_eq(queue.stream.gpu(), self.graph.gpu()) {
            return Err(CudaError::Usage(format!("the graph was recorded on {:?}", self.graph.gpu())));
        }
        if queue.is_recording() {
            return Err(CudaError::Usage("a graph cannot be launched while the stream is recorded".into()));
        }
        let mut uses = None;
        for (buffer, mutable) in &self.recorded.buffers {
            let Some(block) = buffer.remote().and_then(|r| r.downcast::<Block>()) else { continue };
            let uses = uses.get_or_insert_with(|| block.shared.uses());
            if *mutable { uses.write(block.slot, queue)? } else { uses.read(block.slot, queue)? }
        }
        // SAFETY: memory and code are held; the launches follow what else uses that memory.
        unsafe { self.graph.launch(&queue.stream) }
    }
}
