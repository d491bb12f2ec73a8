//! Streams as the runtime uses them.

use super::{
    super::{CudaError, Event, Gpu, Stream},
    recording::Recording,
};
use crate::memory::Buffer;
use std::{
    any::Any,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A stream, with what it takes to wait for it and to record it.
pub struct Queue {
    pub(super) stream: Arc<Stream>,
    /// Recorded anew whenever another queue waits for this one.
    marker: Mutex<Event>,
    recording: AtomicBool,
    recorded: Mutex<Recorded>,
}

/// What recorded launches use, and must stay.
#[derive(Default)]
pub struct Recorded {
    /// Memory, and whether it is written.
    pub buffers: Vec<(Arc<Buffer>, bool)>,
    /// Code.
    pub code: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Queue {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Result<Queue, CudaError> {
        Ok(Queue {
            stream: Arc::new(Stream::new(gpu)?),
            marker: Mutex::new(Event::new(gpu)?),
            recording: AtomicBool::new(false),
            recorded: Mutex::default(),
        })
    }

    /// Waits until all that was put in is done.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        if self.is_recording() {
            return Err(CudaError::Usage("a stream cannot be waited for while it is recorded".into()));
        }
        self.stream.synchronize()
    }

    /// An event with a time, after all that was put in.
    pub fn event(&self) -> Result<Event, CudaError> {
        if self.is_recording() {
            return Err(CudaError::Usage("a stream has no events while it is recorded".into()));
        }
        let event = Event::timed(self.stream.gpu())?;
        event.record(&self.stream)?;
        Ok(event)
    }

    /// What is put in from now on waits for all that `other` has by now.
    pub(super) fn wait_for(&self, other: &Queue) -> Result<(), CudaError> {
        if other.is_recording() {
            let problem = "memory is still in use by a stream that is recorded: end the recording first";
            return Err(CudaError::Usage(problem.into()));
        }
        // A wait is about the marker as it is now: it may be recorded again afterwards.
        let marker = other.marker.lock().unwrap_or_else(PoisonError::into_inner);
        marker.record(&other.stream)?;
        self.stream.wait(&marker)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Relaxed)
    }

    /// Notes what a recorded launch uses.
    pub(super) fn record(&self, note: impl FnOnce(&mut Recorded)) {
        note(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Starts recording.
    pub fn begin(&self) -> Result<(), CudaError> {
        if self.recording.swap(true, Relaxed) {
            return Err(CudaError::Usage("a stream that is recorded cannot be recorded again".into()));
        }
        self.stream.begin_capture().inspect_err(|_| self.recording.store(false, Relaxed))
    }

    /// Ends recording.
    pub fn end(&self) -> Result<Recording, CudaError> {
        let recorded = std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
        let graph = self.stream.end_capture();
        self.recording.store(false, Relaxed);
        Ok(Recording::new(graph?, recorded))
    }
}
