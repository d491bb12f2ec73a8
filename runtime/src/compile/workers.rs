//! The compiler processes of a [`Compiler`](super::Compiler): a few, started when they are needed, kept for the next
//! request, ended when there has been none for a while.

use super::{CompileError, Program, worker::Worker};
use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// Dropping it ends all that have nothing to do.
pub(super) struct Workers {
    limit: usize,
    shared: Arc<Shared>,
}

struct Shared {
    idle_for: Duration,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// Those with nothing to do, and since when; the last one in is the first one out.
    idle: Vec<(Instant, Worker)>,
    busy: usize,
    /// Whether a thread waits to end idle ones.
    watched: bool,
}

impl Workers {
    /// At most `limit`; one with nothing to do for `idle_for` is ended.
    pub(super) fn new(limit: usize, idle_for: Duration) -> Workers {
        Workers { limit, shared: Arc::new(Shared { idle_for, state: Mutex::default(), freed: Condvar::new() }) }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// One that runs, for the caller alone, who gives it back. Waits while as many as there may be are busy.
    pub(super) fn take(&self, program: &Program) -> Result<Worker, CompileError> {
        let mut state = self.shared.lock();
        loop {
            while let Some((_, mut worker)) = state.idle.pop() {
                // One may have died (or been killed) while it had nothing to do.
                if worker.alive() {
                    state.busy += 1;
                    return Ok(worker);
                }
            }
            if state.busy < self.limit {
                break;
            }
            state = self.shared.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy += 1;
        drop(state);
        let started = program.path().and_then(Worker::start);
        if started.is_err() {
            self.give(None);
        }
        started
    }

    /// Takes back one, or notes that one is no more.
    pub(super) fn give(&self, worker: Option<Worker>) {
        let mut state = self.shared.lock();
        state.busy -= 1;
        state.idle.extend(worker.map(|w| (Instant::now(), w)));
        self.shared.freed.notify_one();
        if !state.watched && !state.idle.is_empty() {
            let shared = Arc::downgrade(&self.shared);
            let watch = move || {
                while let Some(wait) = end_idle(&shared) {
                    std::thread::sleep(wait)
                }
            };
            // Without a thread they stay until the next one that is given back, or until the end.
            state.watched = std::thread::Builder::new().name("tegulac-idle".into()).spawn(watch).is_ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends those that have had nothing to do for long enough; gives how long to wait for the next, or nothing if there is
/// none.
fn end_idle(shared: &Weak<Shared>) -> Option<Duration> {
    let shared = shared.upgrade()?;
    let mut state = shared.lock();
    let old = |since: &Instant| since.elapsed() >= shared.idle_for;
    let ended: Vec<_> = state.idle.extract_if(.., |(since, _)| old(since)).collect();
    let next = state.idle.iter().map(|(since, _)| shared.idle_for.saturating_sub(since.elapsed())).min();
    state.watched = next.is_some();
    // Dropping one waits for its end: nobody else shall.
    drop(state);
    drop(ended);
    next
}
