//! What the engine's threads and its callers tell each other without waiting.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::health::{Health, Heartbeat};
use super::request::SubmitError;
use crate::metrics::Metrics;
use crate::schedule::SchedulerStats;

/// What an engine is at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// The scheduler's queues and blocks.
    pub scheduler: SchedulerStats,
    /// Steps run so far.
    pub num_steps: u64,
    /// Of those, steps that failed.
    pub num_failed_steps: u64,
    /// Whether blocks and queues were whole when the engine was last idle for a moment: an error's text if not.
    pub integrity: Option<String>,
}

/// Shared by an engine's handles and threads.
pub struct Shared {
    stats: Mutex<EngineStats>,
    health: Mutex<Health>,
    /// Sequences of requests that were taken, that have not started.
    waiting: AtomicUsize,
    /// Requests that were taken and have not ended.
    active: AtomicUsize,
    /// The last handle is gone: steps that are queued are for nobody.
    pub stopping: AtomicBool,
    pub beat: Arc<Heartbeat>,
    /// How long the device may be silent with work queued.
    pub heartbeat: Duration,
    pub metrics: Arc<Metrics>,
}

impl Shared {
    pub fn new(heartbeat: Duration, metrics: Metrics) -> Shared {
        Shared {
            stats: Mutex::default(),
            health: Mutex::new(Health::Ready),
            waiting: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            beat: Arc::new(Heartbeat::new()),
            heartbeat,
            metrics: Arc::new(metrics),
        }
    }

    pub fn stats(&self) -> MutexGuard<'_, EngineStats> {
        // Whole at any time: who panicked with it had nothing half done.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn health(&self) -> Health {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let working = self.stats().scheduler.num_in_flight > 0;
        let age = self.beat.age();
        match health {
            Health::Ready if working && age > self.heartbeat => Health::Stalled { age },
            other => other,
        }
    }

    /// An engine that has failed stays so, and one that drains does not become ready again.
    pub fn set_health(&self, health: Health) {
        let mut now = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*now, Health::Failed(_)) {
            *now = health;
        }
    }

    /// Sequences that have not started.
    pub fn num_waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Whether every request that was taken has ended.
    pub fn is_idle(&self) -> bool {
        self.active.load(Ordering::SeqCst) == 0
    }
}

/// A request's places in the queue, one for each of its samples, and then its place among those that are served: given back
/// when this is dropped.
pub struct Place {
    shared: Arc<Shared>,
    /// Samples that have not started.
    waits: usize,
}

impl Place {
    /// So many of at most `most` places in the queue, at an engine that takes requests. A request of more samples than
    /// there are places is taken when nobody waits.
    pub fn take(shared: &Arc<Shared>, samples: usize, most: usize) -> Result<Place, SubmitError> {
        let with = |waiting: usize| waiting.saturating_add(samples);
        let more = |waiting| (waiting == 0 || with(waiting) <= most).then(|| with(waiting));
        let taken = shared.waiting.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        taken.map_err(|waiting| SubmitError::QueueFull { waiting, most })?;
        shared.active.fetch_add(1, Ordering::SeqCst);
        let place = Place { shared: shared.clone(), waits: samples };
        // Only now: who begins to drain from here on sees that somebody is coming.
        match shared.health() {
            Health::Ready | Health::Stalled { .. } => Ok(place),
            Health::Draining => Err(SubmitError::Draining),
            Health::Failed(why) => Err(SubmitError::Failed(why)),
        }
    }

    /// A sample waits no more.
    pub fn started(&mut self) {
        if self.waits > 0 {
            self.waits -= 1;
            self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(self.waits, Ordering::SeqCst);
        self.shared.active.fetch_sub(1, Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({} wait)", self.waits)
    }
}
