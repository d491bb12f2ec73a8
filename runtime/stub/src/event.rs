//! Points in streams.

use crate::{
    code::{Code, INVALID_HANDLE, NOT_READY},
    table::lock,
};
use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Instant,
};

/// An event.
pub struct Event {
    timed: bool,
    state: Mutex<State>,
    reached: Condvar,
}

#[derive(Default)]
struct State {
    /// How often it was recorded, and which of these records was reached last.
    recorded: u64,
    reached: u64,
    at: Option<Instant>,
}

impl Event {
    pub fn new(timed: bool) -> Event {
        Event { timed, state: Mutex::default(), reached: Condvar::new() }
    }

    /// One more record; its number.
    pub fn record(&self) -> u64 {
        let mut state = lock(&self.state);
        state.recorded += 1;
        state.recorded
    }

    /// The last record's number.
    pub fn recorded(&self) -> u64 {
        lock(&self.state).recorded
    }

    /// A record is reached.
    pub fn reach(&self, record: u64) {
        let mut state = lock(&self.state);
        if record > state.reached {
            (state.reached, state.at) = (record, Some(Instant::now()));
        }
        self.reached.notify_all();
    }

    /// Waits until a record is reached.
    pub fn wait(&self, record: u64) {
        let mut state = lock(&self.state);
        while state.reached < record {
            state = self.reached.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn is_done(&self) -> bool {
        let state = lock(&self.state);
        state.reached == state.recorded
    }

    /// Milliseconds since an earlier event.
    pub fn since(&self, earlier: &Event) -> Result<f32, Code> {
        let at = |event: &Event| -> Result<Instant, Code> {
            let state = lock(&event.state);
            if !event.timed || state.recorded == 0 {
                return Err(INVALID_HANDLE);
            }
            state.at.filter(|_| state.reached == state.recorded).ok_or(NOT_READY)
        };
        let (start, end) = (at(earlier)?, at(self)?);
        Ok(match end.checked_duration_since(start) {
            Some(time) => time.as_secs_f32() * 1e3,
            None => -start.duration_since(end).as_secs_f32() * 1e3,
        })
    }
}
