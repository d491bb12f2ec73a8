//! Streams as the runtime uses them.

use super::{
    super::{CudaError, Event, Gpu, Stream},
    order::Order,
    recording::Recording,
    uses::Uses,
};
use std::sync::{Arc, MutexGuard};

/// A stream, with what it takes to wait for it and to record it.
pub struct Queue {
    pub(super) stream: Arc<Stream>,
    /// Recorded anew whenever somebody waits for this queue, and when a recording begins, under the lock of `order`.
    pub(super) marker: Event,
    pub(super) order: Arc<Order>,
}

impl Queue {
    pub(super) fn new(gpu: &Arc<Gpu>, order: &Arc<Order>) -> Result<Queue, CudaError> {
        let stream = Arc::new(Stream::new(gpu)?);
        Ok(Queue { stream, marker: Event::new(gpu)?, order: order.clone() })
    }

    /// The lock, while nobody records this queue. That the calling thread does is an error.
    fn live(&self, problem: &str) -> Result<MutexGuard<'_, Uses>, CudaError> {
        let uses = self.order.enter(self);
        if uses.recordings.has(self) { Err(CudaError::Usage(problem.into())) } else { Ok(uses) }
    }

    /// Waits until all that was put in is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let uses = self.live("a stream cannot be waited for while it is recorded")?;
        let launched = self.order.recent().launched();
        let marked = self.marker.record(&self.stream);
        // A wait for the marker and not for the stream, which another thread may begin to record meanwhile.
        drop(uses);
        marked.and_then(|()| self.marker.synchronize()).map_err(|e| self.order.explain(e))?;
        self.order.recent().forget(self, launched);
        Ok(())
    }

    /// An event with a time, after all that was put in.
    pub fn event(&self) -> Result<Event, CudaError> {
        let event = Event::timed(self.stream.gpu())?;
        let _uses = self.live("a stream has no events while it is recorded")?;
        event.record(&self.stream).map_err(|e| self.order.explain(e))?;
        Ok(event)
    }

    /// The calling thread records what it launches here, until the capture ends.
    pub fn begin(self: &Arc<Self>) -> Result<Capture, CudaError> {
        let mut uses = self.live("a stream that is recorded cannot be recorded again")?;
        let begun = self.marker.record(&self.stream).and_then(|()| self.stream.begin_capture());
        begun.map_err(|e| self.order.explain(e))?;
        uses.recordings.add(self);
        Ok(Capture { queue: self.clone(), ended: false })
    }
}

/// A recording under way; dropped, it ends, and what was recorded goes.
pub struct Capture {
    queue: Arc<Queue>,
    ended: bool,
}

impl Capture {
    /// Ends it.
    pub fn end(mut self) -> Result<Recording, CudaError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<Recording, CudaError> {
        self.ended = true;
        let queue = &self.queue;
        let mut uses = queue.order.uses();
        let graph = queue.stream.end_capture();
        let recorded = uses.recordings.remove(queue);
        // What was recorded may be memory's last owner, which needs the lock when it goes.
        drop(uses);
        queue.order.changed();
        graph.map(|graph| Recording::new(graph, recorded)).map_err(|e| queue.order.explain(e))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.finish();
        }
    }
}
