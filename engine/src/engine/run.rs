//! The engine thread: takes in what callers and the device say, one thing after the other.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::command::{Command, Submission};
use super::deliver::Outbox;
use super::device::{Work, thread::message};
use super::drain::Drains;
use super::fault::FaultLogs;
use super::live::Live;
use super::shared::Shared;
use super::step::Steps;
use super::{Health, StepFault};
use crate::metrics::Observer;
use crate::schedule::{FinishReason, Finished, Recorder, Row, Scheduler};
use crate::tokenizer::Tokenizer;

/// Events that a fault's log has at least.
const KEEP: usize = 1024;
/// How long the engine has had nothing to do before it checks its books: not while the next request is on its way.
const IDLE: Duration = Duration::from_millis(20);

/// The engine thread's state.
pub struct Run {
    pub(super) recorder: Recorder,
    pub(super) lives: HashMap<u64, Live>,
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) shared: Arc<Shared>,
    pub(super) out: Outbox,
    pub(super) steps: Steps,
    pub(super) faults: FaultLogs,
    drains: Drains,
    observers: Vec<Arc<dyn Observer>>,
    /// A time to drain is over: who comes now comes too late.
    drained: bool,
    /// Why it cannot go on, if so.
    failed: Option<String>,
    /// Something has happened since the books were last checked.
    unchecked: bool,
}

impl Run {
    pub fn new(
        scheduler: Scheduler,
        tokenizer: Arc<Tokenizer>,
        shared: Arc<Shared>,
        work: Sender<Work>,
        faults: FaultLogs,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Run {
        Run {
            recorder: Recorder::new(scheduler, KEEP),
            lives: HashMap::new(),
            tokenizer,
            shared,
            out: Outbox::default(),
            steps: Steps::new(work),
            faults,
            drains: Drains::default(),
            observers,
            drained: false,
            failed: None,
            unchecked: false,
        }
    }

    /// Until it is told to shut down. A mistake of the engine's own ends all requests, and it takes no more.
    pub fn run(mut self, commands: &Receiver<Command>) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve(commands)));
        if let Err(panic) = served {
            self.broken(&format!("a panic of the engine: {}", message(&*panic)));
            for command in commands {
                match command {
                    Command::Shutdown => break,
                    Command::Submit(submission) => self.refuse(*submission),
                    Command::Drain { deadline, aborted } => self.drains.add(deadline, aborted),
                    _ => {}
                }
                self.out.deliver(&self.shared.metrics, &self.observers);
                self.drains.finish(0);
            }
        }
        self.drains.finish(0);
    }

    fn serve(&mut self, commands: &Receiver<Command>) {
        loop {
            self.plan();
            // Who is told something finds the numbers that belong to it.
            self.publish();
            self.out.deliver(&self.shared.metrics, &self.observers);
            if self.shared.is_idle() {
                self.drains.finish(0);
            }
            let mut next = self.wait(commands);
            if next.is_none() && self.is_idle() && std::mem::take(&mut self.unchecked) {
                self.check();
            }
            while let Some(command) = next {
                if let Command::Shutdown = command {
                    self.end_all(FinishReason::Abort, None);
                    self.publish();
                    return self.out.deliver(&self.shared.metrics, &self.observers);
                }
                // A step that is complete makes room for another, at once.
                let step = matches!(command, Command::Done { .. });
                self.take(command);
                next = if step { None } else { commands.try_recv().ok() };
            }
            if self.drains.is_due(Instant::now()) {
                let left = self.lives.len();
                self.end_all(FinishReason::Abort, None);
                // Who waits for the end finds it told.
                self.publish();
                self.out.deliver(&self.shared.metrics, &self.observers);
                self.drains.finish(left);
                self.drained = true;
            }
        }
    }

    /// The next news; none if there is something to do without any.
    fn wait(&self, commands: &Receiver<Command>) -> Option<Command> {
        let check = (self.unchecked && self.is_idle()).then_some(IDLE);
        let Some(most) = self.drains.wait(Instant::now()).into_iter().chain(check).min() else {
            // Handles that are all gone say so before: this cannot be an error.
            return Some(commands.recv().unwrap_or(Command::Shutdown));
        };
        match commands.recv_timeout(most) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Command::Shutdown),
        }
    }

    fn take(&mut self, command: Command) {
        self.unchecked = true;
        match command {
            Command::Submit(submission) => self.submit(*submission),
            Command::Abort { request } => {
                let ended = self.recorder.abort(request);
                self.finished(&ended);
            }
            Command::AbortAll => self.end_all(FinishReason::Abort, None),
            Command::ResetPrefixCache => self.recorder.reset_prefix_cache(),
            Command::Drain { deadline, aborted } => self.drains.add(deadline, aborted),
            // Who does not wait any more need not know.
            Command::Check(reply) => drop(reply.try_send(self.recorder.scheduler().check_integrity())),
            Command::Done { step, result: Ok(result) } => self.complete(step, result),
            Command::Done { step, result: Err(fault) } => self.fail(step, &fault),
            Command::DeviceGone => self.cannot_go_on("the device thread has ended"),
            Command::Shutdown => {}
        }
    }

    fn submit(&mut self, submission: Submission) {
        if self.failed.is_some() || self.drained {
            return self.refuse(submission);
        }
        let request = submission.new.request;
        match self.recorder.add(submission.new.clone()) {
            Ok(()) => drop(self.lives.insert(request, Live::new(submission))),
            // It was admissible when it was sent, and the limits do not change.
            Err(error) => {
                Live::new(submission).refuse(FinishReason::Error, &error.to_string(), Instant::now(), &mut self.out)
            }
        }
    }

    /// Ends a request that came too late.
    fn refuse(&mut self, submission: Submission) {
        let (reason, why) = match &self.failed {
            Some(why) => (FinishReason::Error, why.as_str()),
            None => (FinishReason::Abort, ""),
        };
        Live::new(submission).refuse(reason, why, Instant::now(), &mut self.out);
    }

    /// Ends all requests, and takes no more: no step can be run.
    pub(super) fn cannot_go_on(&mut self, why: &str) {
        if self.failed.is_none() {
            tracing::error!("the engine cannot go on: {why}");
            self.failed = Some(why.to_owned());
            self.shared.set_health(Health::Failed(why.to_owned()));
        }
        self.end_all(FinishReason::Error, Some(why));
    }

    /// As [`Run::cannot_go_on`], when not even the books can be trusted.
    fn broken(&mut self, why: &str) {
        tracing::error!("{why}");
        self.failed = Some(why.to_owned());
        self.shared.set_health(Health::Failed(why.to_owned()));
        let now = Instant::now();
        for (_, mut live) in self.lives.drain() {
            live.refuse(FinishReason::Error, why, now, &mut self.out);
        }
        // What the books last said, but that nothing is left.
        {
            let scheduler = &mut self.shared.stats().scheduler;
            (scheduler.num_running, scheduler.num_waiting, scheduler.num_deferred) = (0, 0, 0);
            (scheduler.num_in_flight, scheduler.kv.unused) = (0, scheduler.kv.unused + scheduler.kv.used);
            scheduler.kv.used = 0;
            self.shared.metrics.scheduler(scheduler);
        }
        self.out.deliver(&self.shared.metrics, &self.observers);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn end_all(&mut self, reason: FinishReason, why: Option<&str>) {
        let mut requests: Vec<u64> = self.lives.keys().copied().collect();
        requests.sort_unstable();
        for request in requests {
            let Some(live) = self.lives.get_mut(&request) else { continue };
            let ids: Vec<_> = live.sequences().collect();
            if let Some(why) = why {
                ids.iter().for_each(|id| live.fault(id.sample, why));
            }
            let ended: Vec<Finished> = ids.into_iter().filter_map(|id| self.recorder.finish(id, reason)).collect();
            self.finished(&ended);
        }
    }

    /// Ends sequences for those who wait.
    pub(super) fn finished(&mut self, ended: &[Finished]) {
        let now = Instant::now();
        for finished in ended {
            self.steps.ended(finished.id);
            let request = finished.id.request;
            if self.lives.get_mut(&request).is_some_and(|live| live.finish(finished, now, &mut self.out)) {
                self.lives.remove(&request);
            }
        }
    }

    fn is_idle(&self) -> bool {
        let scheduler = self.recorder.scheduler();
        !scheduler.has_unfinished_requests() && !scheduler.has_steps_in_flight()
    }

    /// Looks whether every block is accounted for.
    fn check(&self) {
        let wrong = self.recorder.scheduler().check_integrity().err().map(|e| e.to_string());
        if let Some(what) = &wrong {
            tracing::error!("blocks are not accounted for: {what}");
        }
        self.shared.stats().integrity = wrong;
    }

    /// Tells everybody how things are.
    fn publish(&mut self) {
        let now = self.recorder.scheduler().stats();
        self.shared.metrics.scheduler(&now);
        let mut stats = self.shared.stats();
        stats.scheduler = now;
        (stats.num_steps, stats.num_failed_steps) = self.steps.counts();
    }

    /// A failed step, in the log: of its plan the shape, since what it was about is nobody's business there. All of it is
    /// in the fault's own log, if that is wanted.
    pub(super) fn note_fault(&mut self, step: u64, fault: &StepFault) {
        let log = self.recorder.log();
        let plan = log.entries.iter().rev().find_map(|entry| entry.plan.as_ref().filter(|plan| plan.step == step));
        let row = |row: &Row| format!("{}:{}+{}", row.id, row.start, row.num_tokens());
        let rows = plan.map_or(String::new(), |plan| plan.rows.iter().map(row).collect::<Vec<_>>().join(" "));
        tracing::error!("step {step} failed: {fault}; its rows, as sequence:start+tokens: {rows}");
        self.faults.write(step, &fault.to_string(), log);
    }
}
