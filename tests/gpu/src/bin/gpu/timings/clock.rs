//! Times of launches.

use super::Failure;
use crate::options::Sizes;
use std::time::{Duration, Instant};
use tegula::prelude::*;
use tegula_kernels::basic::vector_add;

/// More than a GPU's L2 cache holds, in f32 numbers: 256 MiB in all.
const FLUSH: usize = 32 << 20;
/// Repeats of a launch.
const MOST: usize = 60;
const LEAST: usize = 3;

/// Measures launches one by one.
pub struct Clock {
    /// What is read and written before each, so that nothing of it is in the cache: none where sizes are small.
    flush: Option<(Tensor<f32>, Tensor<f32>)>,
}

impl Clock {
    /// For a stream's device.
    pub fn new(stream: &Stream, sizes: Sizes) -> Result<Clock, Failure> {
        let device = stream.device();
        let flush = match sizes {
            Sizes::Real => Some((device.zeros([FLUSH])?, device.zeros([FLUSH])?)),
            Sizes::Small => None,
        };
        Ok(Clock { flush })
    }

    /// Seconds of each launch, rising, for as long as is allowed. While the cache is flushed the host has put the launch
    /// and both its events into the queue already: no time of the host is in between.
    pub fn times(
        &mut self,
        stream: &Stream,
        launch: &mut dyn FnMut(&Stream) -> Result<(), LaunchError>,
        most: Duration,
    ) -> Result<Vec<f64>, Failure> {
        let begun = Instant::now();
        let mut times = vec![];
        while times.len() < LEAST || times.len() < MOST && begun.elapsed() < most {
            if let Some((a, b)) = &mut self.flush {
                vector_add::launch(&*a, &*a, b).dims(1024).run(stream)?;
            }
            let start = stream.event()?;
            launch(stream)?;
            let end = stream.event()?;
            times.push(end.since(&start)?.as_secs_f64());
            // Three launches that take longer than all that is left are enough.
            if begun.elapsed() > 2 * most {
                break;
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }
}
