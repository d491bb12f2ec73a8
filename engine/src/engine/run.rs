//! The engine thread.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::command::{Command, Submission};
use super::device::{StepFault, StepResult, Work};
use super::live::Live;
use super::{Health, Shared, Start};
use crate::schedule::{FinishReason, Finished, Recorder, Scheduler, SequenceId};
use crate::tokenizer::Tokenizer;

/// Events that a fault's log has at least.
const KEEP: usize = 1024;
/// Steps that may fail one after the other before the engine counts as failed.
const MOST_FAILED_STEPS: u32 = 3;

/// The engine thread's state.
pub struct Run {
    recorder: Recorder,
    lives: HashMap<u64, Live>,
    tokenizer: Arc<Tokenizer>,
    shared: Arc<Shared>,
    work: Sender<Work>,
    fault_log: Option<PathBuf>,
    /// Sequences that ended or were preempted since the last step was sent.
    ends: Vec<SequenceId>,
    num_steps: u64,
    num_failed_steps: u64,
    failed_in_a_row: u32,
    integrity: Option<String>,
    failed: bool,
}

impl Run {
    pub fn new(
        scheduler: Scheduler,
        tokenizer: Arc<Tokenizer>,
        shared: Arc<Shared>,
        work: Sender<Work>,
        fault_log: Option<PathBuf>,
    ) -> Run {
        Run {
            recorder: Recorder::new(scheduler, KEEP),
            lives: HashMap::new(),
            tokenizer,
            shared,
            work,
            fault_log,
            ends: vec![],
            num_steps: 0,
            num_failed_steps: 0,
            failed_in_a_row: 0,
            integrity: None,
            failed: false,
        }
    }

    /// Until it is told to shut down.
    pub fn run(mut self, commands: &Receiver<Command>) {
        loop {
            self.plan();
            self.publish();
            // All handles are gone, which the last one says before.
            let Ok(mut command) = commands.recv() else { return };
            loop {
                if let Command::Shutdown = command {
                    self.end_all(FinishReason::Abort, None);
                    return;
                }
                self.take(command);
                match commands.try_recv() {
                    Ok(next) => command = next,
                    Err(_) => break,
                }
            }
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => self.submit(*submission),
            Command::Abort { request } => {
                let ended = self.recorder.abort(request);
                self.finished(&ended);
            }
            Command::AbortAll => self.end_all(FinishReason::Abort, None),
            Command::ResetPrefixCache => self.recorder.reset_prefix_cache(),
            Command::Done { step, result: Ok(result) } => self.complete(step, result),
            Command::Done { step, result: Err(fault) } => self.fail(step, &fault),
            Command::Shutdown => {}
        }
    }

    fn submit(&mut self, submission: Submission) {
        let request = submission.new.request;
        let added = self.recorder.add(submission.new.clone());
        self.lives.insert(request, Live::new(submission));
        // Checked before it was sent; and a failed engine takes nothing.
        let refused = match (&added, self.failed) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(()), true) => Some("the engine has failed".to_owned()),
            (Ok(()), false) => None,
        };
        if let Some(why) = refused {
            self.refuse(request, &why);
        }
    }

    /// Ends a request that could not be taken after all.
    fn refuse(&mut self, request: u64, why: &str) {
        let Some(live) = self.lives.get_mut(&request) else { return };
        let samples = live.specs.len() as u32;
        let mut ended = vec![];
        for sample in 0..samples {
            live.fault(sample, why);
            let id = SequenceId { request, sample };
            ended.push(self.recorder.finish(id, FinishReason::Error).unwrap_or(Finished {
                id,
                reason: FinishReason::Error,
                num_prompt_tokens: 0,
                num_output_tokens: 0,
                num_cached_tokens: 0,
                num_preemptions: 0,
            }));
        }
        self.finished(&ended);
    }

    /// Plans as many steps as may be in flight.
    fn plan(&mut self) {
        while !self.failed {
            let Some(plan) = self.recorder.plan() else { break };
            let now = Instant::now();
            self.ends.extend(&plan.preempted);
            let mut starts = vec![];
            for admitted in &plan.admitted {
                let id = admitted.id;
                let Some(live) = self.lives.get_mut(&id.request) else { continue };
                live.started(id.sample, admitted.num_cached_tokens, now, &self.shared.waiting);
                let spec = live.specs[id.sample as usize].clone();
                starts.push(Start { id, spec, answer: live.answer(id.sample).to_vec() });
            }
            let work = Work { plan, starts, ends: std::mem::take(&mut self.ends) };
            if self.work.send(work).is_err() {
                self.cannot_go_on("the device thread has ended");
            }
        }
    }

    fn complete(&mut self, step: u64, mut result: StepResult) {
        let now = Instant::now();
        self.num_steps += 1;
        self.failed_in_a_row = 0;
        for (id, position, value) in result.prompt_logprobs.drain(..) {
            if let Some(live) = self.lives.get_mut(&id.request) {
                live.prompt_logprobs(position, value);
            }
        }
        let tokens: Vec<u32> = result.rows.iter().map(|row| row.token).collect();
        let ids = self.recorder.scheduler().wanted(step);
        for (row, id) in result.rows.iter().zip(&ids) {
            if let (Some(why), Some(id)) = (&row.fault, id) {
                self.end_one(*id, FinishReason::Error, why);
            }
        }
        let output = match self.recorder.complete(step, &tokens) {
            Ok(output) => output,
            Err(error) => return self.fail(step, &StepFault::Step(error.to_string())),
        };
        let sampled = ids.into_iter().zip(&mut result.rows);
        let mut rows: HashMap<SequenceId, _> = sampled.filter_map(|(id, row)| Some((id?, row))).collect();
        let mut stopped = vec![];
        for new in &output.tokens {
            let Some(live) = self.lives.get_mut(&new.id.request) else { continue };
            let Some(sampled) = rows.get_mut(&new.id) else { continue };
            if live.push(&self.tokenizer, new, sampled, now) {
                stopped.push(new.id);
            }
        }
        self.finished(&output.finished);
        for id in stopped {
            let ended = self.recorder.finish(id, FinishReason::Stop);
            self.finished(ended.as_slice());
        }
    }

    fn fail(&mut self, step: u64, fault: &StepFault) {
        self.num_steps += 1;
        self.num_failed_steps += 1;
        self.failed_in_a_row += 1;
        self.log_fault(step, fault);
        let ended = self.recorder.fail(step).unwrap_or_default();
        for finished in &ended {
            if let Some(live) = self.lives.get_mut(&finished.id.request) {
                live.fault(finished.id.sample, &fault.to_string());
            }
        }
        self.finished(&ended);
        if matches!(fault, StepFault::Lost(_)) || self.failed_in_a_row >= MOST_FAILED_STEPS {
            self.cannot_go_on(&fault.to_string());
        }
    }

    fn cannot_go_on(&mut self, why: &str) {
        self.failed = true;
        tracing::error!("the engine cannot go on: {why}");
        self.shared.set_health(Health::Failed(why.to_owned()));
        self.end_all(FinishReason::Error, Some(why));
    }

    /// The events that led to a failed step.
    fn log_fault(&self, step: u64, fault: &StepFault) {
        tracing::error!("step {step} failed: {fault}");
        let Some(path) = &self.fault_log else { return };
        let written = serde_json::to_vec(self.recorder.log()).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|json| std::fs::write(path, json)) {
            tracing::warn!("{}: {error}", path.display());
        }
    }

    fn end_one(&mut self, id: SequenceId, reason: FinishReason, why: &str) {
        if let Some(live) = self.lives.get_mut(&id.request) {
            live.fault(id.sample, why);
        }
        let ended = self.recorder.finish(id, reason);
        self.finished(ended.as_slice());
    }

    fn end_all(&mut self, reason: FinishReason, why: Option<&str>) {
        let requests: Vec<(u64, u32)> = self.lives.iter().map(|(n, live)| (*n, live.specs.len() as u32)).collect();
        for (request, samples) in requests {
            for sample in 0..samples {
                let id = SequenceId { request, sample };
                match why {
                    Some(why) => self.end_one(id, reason, why),
                    None => {
                        let ended = self.recorder.finish(id, reason);
                        self.finished(ended.as_slice());
                    }
                }
            }
        }
    }

    /// Tells whoever waits for sequences that have ended.
    fn finished(&mut self, ended: &[Finished]) {
        let now = Instant::now();
        for finished in ended {
            let request = finished.id.request;
            self.ends.push(finished.id);
            let Some(live) = self.lives.get_mut(&request) else { continue };
            live.finish(finished, now);
            if live.left == 0 {
                if live.waits() {
                    self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
                }
                self.lives.remove(&request);
            }
        }
    }

    /// Tells everybody how things are.
    fn publish(&mut self) {
        let scheduler = self.recorder.scheduler();
        if !scheduler.has_unfinished_requests() && !scheduler.has_steps_in_flight() {
            self.integrity = scheduler.check_integrity().err().map(|e| e.to_string());
            if let Some(what) = &self.integrity {
                tracing::error!("blocks are not accounted for: {what}");
            }
        }
        let mut stats = self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.scheduler = scheduler.stats();
        (stats.num_steps, stats.num_failed_steps) = (self.num_steps, self.num_failed_steps);
        stats.integrity.clone_from(&self.integrity);
    }
}
