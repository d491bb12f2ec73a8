//! Streams, points in them, and recordings of them.

use super::{
    Device, DeviceError,
    cuda::{self, Queue, Recording},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use tegula_lang::launch::{Executor, LaunchDesc, LaunchError};

/// A queue of work on a device: launches run one after the other, beside those of other streams.
///
/// On a GPU a launch returns before its kernel has run. Nothing needs to be waited for, though: kernels that use one tensor
/// run in the order of their launches, whatever their streams; memory is freed after the work that uses it; host code that
/// looks into a tensor waits for the kernels that write it. A fault of a kernel shows where it is waited for. On other
/// devices a launch has ended when it returns.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    /// A GPU's, or why there is none.
    queue: Result<Option<Arc<Queue>>, DeviceError>,
}

impl Stream {
    pub(super) fn new(device: &Device) -> Stream {
        Stream { device: device.clone(), queue: device.inner.target.queue() }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn queue(&self) -> Result<Option<&Arc<Queue>>, DeviceError> {
        self.queue.as_ref().map(Option::as_ref).map_err(DeviceError::clone)
    }

    fn failed(&self, error: cuda::CudaError) -> DeviceError {
        DeviceError::Cuda { place: self.device.name(), error }
    }

    /// Waits until all work that was launched here is done. Errors of kernels show here.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.queue()?.map_or(Ok(()), |q| q.synchronize().map_err(|e| self.failed(e)))
    }

    /// A point after all work that was launched here, to measure the time between two.
    pub fn event(&self) -> Result<Event, DeviceError> {
        let point = match self.queue()? {
            None => Point::Host(Instant::now()),
            Some(queue) => Point::Gpu(Arc::new(queue.event().map_err(|e| self.failed(e))?)),
        };
        Ok(Event { point, device: self.device.name() })
    }

    /// Records the launches that `record` makes on this stream, without running them. Their kernels are loaded, their
    /// tensors stay; later launches of the graph read and write these tensors again, at a small part of the host's time.
    ///
    /// The stream is the calling thread's meanwhile: what other threads launch on it waits until the recording ends, so
    /// `record` must not wait for such a thread. Other streams go on as ever. If `record` fails or panics, the recording
    /// is given up, and the stream can be used again.
    ///
    /// # Errors
    /// What `record` gives. The device records nothing (only GPUs do); a tensor is not in its memory; a kernel prints or
    /// checks.
    pub fn capture<E: From<DeviceError>>(&self, record: impl FnOnce(&Stream) -> Result<(), E>) -> Result<Graph, E> {
        let Some(queue) = self.queue()? else {
            let problem = format!("{} records no graphs: only GPUs do", self.device.name());
            return Err(DeviceError::Unsupported(problem).into());
        };
        let capture = queue.begin().map_err(|e| self.failed(e))?;
        record(self)?;
        let recording = capture.end().map_err(|e| self.failed(e))?;
        Ok(Graph { recording, device: self.device.name() })
    }
}

impl Executor for Stream {
    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        let queue = self.queue().map_err(|e| LaunchError::executor(launch.kernel.name, e))?;
        self.device.launch_on(queue, launch)
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.device.name())
    }
}

/// A point in a stream.
#[derive(Clone)]
pub struct Event {
    point: Point,
    device: String,
}

#[derive(Clone)]
enum Point {
    Host(Instant),
    Gpu(Arc<cuda::Event>),
}

impl Event {
    /// The time between an earlier point, of a stream of the same device, and this one. Waits for both.
    pub fn since(&self, earlier: &Event) -> Result<Duration, DeviceError> {
        match (&self.point, &earlier.point) {
            (Point::Host(end), Point::Host(start)) => Ok(end.saturating_duration_since(*start)),
            (Point::Gpu(end), Point::Gpu(start)) => {
                let time = start.synchronize().and_then(|()| end.synchronize()).and_then(|()| end.since(start));
                time.map_err(|error| DeviceError::Cuda { place: self.device.clone(), error })
            }
            _ => Err(DeviceError::Unsupported(format!("no time between {} and {}", earlier.device, self.device))),
        }
    }

    /// Waits until the point is reached.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        match &self.point {
            Point::Host(_) => Ok(()),
            Point::Gpu(event) => {
                event.synchronize().map_err(|error| DeviceError::Cuda { place: self.device.clone(), error })
            }
        }
    }
}

/// Recorded launches.
pub struct Graph {
    recording: Recording,
    device: String,
}

impl Graph {
    /// Launches all of them, in a stream of the same device.
    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        let Some(queue) = stream.queue()? else {
            let problem = format!("a graph of {} cannot be launched on {}", self.device, stream.device.name());
            return Err(DeviceError::Unsupported(problem));
        };
        self.recording.launch(queue).map_err(|e| stream.failed(e))
    }
}
