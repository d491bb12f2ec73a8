//! Work that is recorded once and put into streams as a whole.

use super::{CudaError, Gpu, Stream, driver::call};
use cudarc::driver::sys;
use std::{ptr, sync::Arc};

/// Recorded work, ready to run.
pub struct Graph {
    raw: sys::CUgraphExec,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver's handles may be used by any thread; launching is unsafe, and the caller's to order.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Stream {
    /// From now on what is put in is not run but recorded, until [`Stream::end_capture`].
    pub fn begin_capture(&self) -> Result<(), CudaError> {
        self.gpu().bind()?;
        // Relaxed: other threads, and other streams, may do what they like meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live stream.
        unsafe { call!(cuStreamBeginCapture_v2(self.raw(), mode)) }
    }

    /// Ends the recording, and gives what was recorded.
    pub fn end_capture(&self) -> Result<Graph, CudaError> {
        self.gpu().bind()?;
        let (mut graph, mut raw) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: live handles; the driver writes new ones. The graph is not needed once it is instantiated.
        unsafe {
            call!(cuStreamEndCapture(self.raw(), &mut graph))?;
            let instantiated = call!(cuGraphInstantiateWithFlags(&mut raw, graph, 0));
            let _ = call!(cuGraphDestroy(graph));
            instantiated?;
        }
        Ok(Graph { raw, gpu: self.gpu().clone() })
    }
}

impl Graph {
    /// Its GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Puts all of it into a stream.
    ///
    /// # Safety
    /// What was recorded is still right: memory that it uses is there, and nobody else uses it in a way that conflicts. No
    /// other thread launches this graph at the same time.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.gpu.bind()?;
        // SAFETY: live handles; the rest is this function's contract.
        unsafe { call!(cuGraphLaunch(self.raw, stream.raw())) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = self.gpu.bind();
        // SAFETY: a live graph, which nobody uses afterwards; what was launched of it runs to its end.
        let _ = unsafe { call!(cuGraphExecDestroy(self.raw)) };
    }
}
