//! Whether an engine goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How an engine is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Ready,
    /// It finishes what it has, and takes nothing new.
    Draining,
    /// There is work, and the device has not moved for so long.
    Stalled {
        /// Since the last sign of life.
        age: Duration,
    },
    /// It cannot go on.
    Failed(String),
}

/// Signs of life of the thread that runs steps: at the beginning and end of a step, and after each layer of one.
#[derive(Debug)]
pub struct Heartbeat {
    start: Instant,
    /// Nanoseconds from the start to the last beat.
    last: AtomicU64,
}

impl Heartbeat {
    /// That begins now.
    pub fn new() -> Heartbeat {
        Heartbeat { start: Instant::now(), last: AtomicU64::new(0) }
    }

    /// A sign of life.
    pub fn tick(&self) {
        self.last.store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Since the last one.
    pub fn age(&self) -> Duration {
        self.start.elapsed().saturating_sub(Duration::from_nanos(self.last.load(Ordering::Relaxed)))
    }
}

impl Default for Heartbeat {
    fn default() -> Heartbeat {
        Heartbeat::new()
    }
}
