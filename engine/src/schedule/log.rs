//! What happened, so that it can happen again: events and the plans they led to.

use std::mem;

use serde::{Deserialize, Serialize};

use super::output::{FinishReason, Finished, StepError, StepOutput};
use super::plan::StepPlan;
use super::request::{AdmissionError, NewRequest, SequenceId};
use super::scheduler::Scheduler;

/// One call of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Add(NewRequest),
    Abort { request: u64 },
    Finish { id: SequenceId, reason: FinishReason },
    Plan,
    Complete { step: u64, tokens: Vec<u32> },
    Fail { step: u64 },
    ResetPrefixCache,
}

/// An event, and the plan that it led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub event: Event,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<StepPlan>,
}

/// A scheduler as it was, and what happened to it since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    pub start: Scheduler,
    pub entries: Vec<Entry>,
}

/// A replay that planned something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {entry} of the log has the plan {logged:?}; replaying it gave {replayed:?}")]
pub struct Divergence {
    /// Index in the log.
    pub entry: usize,
    pub logged: Option<StepPlan>,
    pub replayed: Option<StepPlan>,
}

impl Log {
    /// Lets everything happen again, and gives the scheduler as it is then.
    pub fn replay(&self) -> Result<Scheduler, Box<Divergence>> {
        let mut scheduler = self.start.clone();
        for (entry, Entry { event, plan }) in self.entries.iter().enumerate() {
            let replayed = scheduler.apply(event);
            if replayed != *plan {
                return Err(Box::new(Divergence { entry, logged: plan.clone(), replayed }));
            }
        }
        Ok(scheduler)
    }
}

impl Scheduler {
    /// Lets an event happen. Its plan, if that is what it was.
    fn apply(&mut self, event: &Event) -> Option<StepPlan> {
        match event.clone() {
            Event::Add(request) => drop(self.add(request)),
            Event::Abort { request } => drop(self.abort(request)),
            Event::Finish { id, reason } => drop(self.finish(id, reason)),
            Event::Plan => return self.plan(),
            Event::Complete { step, tokens } => drop(self.complete(step, &tokens)),
            Event::Fail { step } => drop(self.fail(step)),
            Event::ResetPrefixCache => self.reset_prefix_cache(),
        }
        None
    }
}

/// A scheduler that remembers what happened lately.
#[derive(Clone, Debug)]
pub struct Recorder {
    scheduler: Scheduler,
    log: Log,
    /// The scheduler as it was after the first `keep` entries of the log.
    halfway: Scheduler,
    keep: usize,
}

impl Recorder {
    /// Remembers the last `keep` events at least, twice as many at most. Each `keep` events the scheduler's state is
    /// copied, the waiting prompts with it: keep thousands.
    pub fn new(scheduler: Scheduler, keep: usize) -> Recorder {
        let log = Log { start: scheduler.clone(), entries: vec![] };
        Recorder { halfway: scheduler.clone(), scheduler, log, keep: keep.max(1) }
    }

    /// The scheduler, to ask it things.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// What happened lately.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// As [`Scheduler::add`].
    pub fn add(&mut self, request: NewRequest) -> Result<(), AdmissionError> {
        self.note(Event::Add(request.clone()));
        self.scheduler.add(request)
    }

    /// As [`Scheduler::abort`].
    pub fn abort(&mut self, request: u64) -> Vec<Finished> {
        self.note(Event::Abort { request });
        self.scheduler.abort(request)
    }

    /// As [`Scheduler::finish`].
    pub fn finish(&mut self, id: SequenceId, reason: FinishReason) -> Option<Finished> {
        self.note(Event::Finish { id, reason });
        self.scheduler.finish(id, reason)
    }

    /// As [`Scheduler::plan`].
    pub fn plan(&mut self) -> Option<StepPlan> {
        self.note(Event::Plan);
        let plan = self.scheduler.plan();
        if let Some(entry) = self.log.entries.last_mut() {
            entry.plan.clone_from(&plan);
        }
        plan
    }

    /// As [`Scheduler::complete`].
    pub fn complete(&mut self, step: u64, tokens: &[u32]) -> Result<StepOutput, StepError> {
        self.note(Event::Complete { step, tokens: tokens.to_vec() });
        self.scheduler.complete(step, tokens)
    }

    /// As [`Scheduler::fail`].
    pub fn fail(&mut self, step: u64) -> Result<Vec<Finished>, StepError> {
        self.note(Event::Fail { step });
        self.scheduler.fail(step)
    }

    /// As [`Scheduler::reset_prefix_cache`].
    pub fn reset_prefix_cache(&mut self) {
        self.note(Event::ResetPrefixCache);
        self.scheduler.reset_prefix_cache();
    }

    fn note(&mut self, event: Event) {
        let (entries, now) = (&mut self.log.entries, &self.scheduler);
        if entries.len() == 2 * self.keep {
            entries.drain(..self.keep);
            self.log.start = mem::replace(&mut self.halfway, now.clone());
        } else if entries.len() == self.keep {
            self.halfway = now.clone();
        }
        entries.push(Entry { event, plan: None });
    }
}
