//! Queues of work, and points in them.

use super::{CudaError, Gpu, driver::call};
use cudarc::driver::sys;
use std::{ptr, sync::Arc, time::Duration};

/// A queue of work on a GPU: what is put in runs one after the other, beside that of other streams. Dropping it lets what
/// is in it run to its end.
pub struct Stream {
    raw: sys::CUstream,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new queue.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Stream, CudaError> {
        gpu.bind()?;
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the driver writes a handle.
        unsafe { call!(cuStreamCreate(&mut raw, flags))? };
        Ok(Stream { raw, gpu: gpu.clone() })
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits until all that was put in is done. Errors of kernels show here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live stream.
        unsafe { call!(cuStreamSynchronize(self.raw)) }
    }

    /// Whether all that was put in is done.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live stream.
        done(unsafe { call!(cuStreamQuery(self.raw)) })
    }

    /// What is put in from now on waits until the event's last record is reached.
    pub fn wait(&self, event: &Event) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live stream and event.
        unsafe { call!(cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: a live stream, which nobody uses afterwards.
        let _ = unsafe { call!(cuStreamDestroy_v2(self.raw)) };
    }
}

/// A point in a stream.
pub struct Event {
    raw: sys::CUevent,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that keeps its time, for [`Event::since`].
    pub fn timed(gpu: &Arc<Gpu>) -> Result<Event, CudaError> {
        Event::with(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    /// An event to wait for, without a time.
    pub fn new(gpu: &Arc<Gpu>) -> Result<Event, CudaError> {
        Event::with(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    fn with(gpu: &Arc<Gpu>, flags: sys::CUevent_flags) -> Result<Event, CudaError> {
        gpu.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes a handle.
        unsafe { call!(cuEventCreate(&mut raw, flags as u32))? };
        Ok(Event { raw, gpu: gpu.clone() })
    }

    /// Becomes the point in `stream` after all that was put in.
    pub fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live event and stream.
        unsafe { call!(cuEventRecord(self.raw, stream.raw)) }
    }

    /// Waits until the point is reached; an event that was never recorded is.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live event.
        unsafe { call!(cuEventSynchronize(self.raw)) }
    }

    /// Whether the point is reached.
    pub fn is_done(&self) -> Result<bool, CudaError> {
        self.gpu.bind()?;
        // SAFETY: a live event.
        done(unsafe { call!(cuEventQuery(self.raw)) })
    }

    /// The time from an earlier event to this one, on the GPU's clock (about 0.5 µs fine).
    ///
    /// # Errors
    /// One of them is not reached, was never recorded, or keeps no time.
    pub fn since(&self, earlier: &Event) -> Result<Duration, CudaError> {
        self.gpu.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: live events; the driver writes a number.
        unsafe { call!(cuEventElapsedTime(&mut milliseconds, earlier.raw, self.raw))? };
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: a live event, which nobody uses afterwards.
        let _ = unsafe { call!(cuEventDestroy_v2(self.raw)) };
    }
}

/// What a query says.
fn done(result: Result<(), CudaError>) -> Result<bool, CudaError> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if e.code() == Some(sys::CUresult::CUDA_ERROR_NOT_READY as u32) => Ok(false),
        Err(e) => Err(e),
    }
}
