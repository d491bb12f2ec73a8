//! Steps, as the engine thread sees them: planned, sent, and taken in.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::device::{RowFault, Start, StepFault, StepResult, Work};
use super::live::{Live, Push};
use super::run::Run;
use crate::schedule::{FinishReason, SequenceId};

/// Steps that may fail one after the other before the engine counts as failed.
const MOST_FAILED_STEPS: u32 = 3;

/// The engine thread's account of steps.
pub struct Steps {
    work: Sender<Work>,
    /// Steps in flight, oldest first, and tokens of each.
    in_flight: VecDeque<(u64, usize)>,
    /// Sequences that ended or were preempted since the last step was sent.
    ends: Vec<SequenceId>,
    num_steps: u64,
    num_failed: u64,
    failed_in_a_row: u32,
}

impl Steps {
    pub fn new(work: Sender<Work>) -> Steps {
        Steps { work, in_flight: VecDeque::new(), ends: vec![], num_steps: 0, num_failed: 0, failed_in_a_row: 0 }
    }

    /// Nothing of this sequence is needed any more.
    pub fn ended(&mut self, id: SequenceId) {
        self.ends.push(id);
    }

    /// Steps run, and of those, failed.
    pub fn counts(&self) -> (u64, u64) {
        (self.num_steps, self.num_failed)
    }

    /// A step's result is there. Its tokens.
    fn done(&mut self, step: u64) -> usize {
        self.num_steps += 1;
        let known = self.in_flight.pop_front_if(|(of, _)| *of == step);
        known.map_or(0, |(_, num_tokens)| num_tokens)
    }
}

impl Run {
    /// Plans and sends as many steps as may be in flight.
    pub(super) fn plan(&mut self) {
        while !self.has_failed() && self.recorder.scheduler().may_plan() {
            let Some(plan) = self.recorder.plan() else { break };
            let now = Instant::now();
            self.steps.ends.extend(&plan.preempted);
            let mut starts = Vec::with_capacity(plan.admitted.len());
            for admitted in &plan.admitted {
                let id = admitted.id;
                // Every sequence of the scheduler's is of a request that lives.
                let Some(live) = self.lives.get_mut(&id.request) else { continue };
                live.started(id.sample, admitted.num_cached_tokens, now, &mut self.out);
                let spec = live.specs[id.sample as usize].clone();
                starts.push(Start { id, spec, answer: live.answer(id.sample).to_vec() });
            }
            if self.steps.in_flight.is_empty() {
                // From now on a sign of life is awaited.
                self.shared.beat.tick();
            }
            self.steps.in_flight.push_back((plan.step, plan.num_scheduled_tokens()));
            let work = Work { plan, starts, ends: std::mem::take(&mut self.steps.ends) };
            if self.steps.work.send(work).is_err() {
                self.cannot_go_on("the device thread has ended");
            }
        }
    }

    /// Takes in what a step gave.
    pub(super) fn complete(&mut self, step: u64, mut result: StepResult) {
        let now = Instant::now();
        for (id, position, value) in result.prompt_logprobs.drain(..) {
            if let Some(live) = self.lives.get_mut(&id.request) {
                live.prompt_logprobs(position, value);
            }
        }
        let was_wanted = self.recorder.scheduler().is_wanted(step);
        // For each row: whose it is, if anybody wants it.
        let ids = self.recorder.scheduler().wanted(step);
        for (row, id) in result.rows.iter().zip(&ids) {
            let Some(id) = id else { continue };
            if let Some(why) = &row.fault {
                if let RowFault::NoLogits(_) = why {
                    self.shared.metrics.corrupted();
                }
                self.end_row(*id, &why.to_string());
            } else if self.lives.get(&id.request).is_some_and(Live::lacks_prompt_logprobs) {
                self.end_row(*id, "the log-probabilities of its prompt were lost in a step that failed");
            }
        }
        let tokens: Vec<u32> = result.rows.iter().map(|row| row.token).collect();
        let output = match self.recorder.complete(step, &tokens) {
            Ok(output) => output,
            Err(error) => return self.fail(step, &StepFault::Step(error.to_string())),
        };
        if was_wanted {
            // One for nobody may do for lack of anything to do.
            self.steps.failed_in_a_row = 0;
        }
        let num_tokens = self.steps.done(step);
        let sampled = ids.into_iter().zip(&mut result.rows);
        let mut rows: HashMap<SequenceId, _> = sampled.filter_map(|(id, row)| Some((id?, row))).collect();
        let mut stopped = vec![];
        for new in &output.tokens {
            let Some(live) = self.lives.get_mut(&new.id.request) else { continue };
            let Some(sampled) = rows.get_mut(&new.id) else { continue };
            let last = output.finished.iter().any(|finished| finished.id == new.id);
            let (tokenizer, metrics) = (&*self.tokenizer, &*self.shared.metrics);
            if live.push(Push { tokenizer, new, sampled, last, now, metrics }, &mut self.out) {
                stopped.push(new.id);
            }
        }
        self.finished(&output.finished);
        for id in stopped {
            let ended = self.recorder.finish(id, FinishReason::Stop);
            self.finished(ended.as_slice());
        }
        self.shared.metrics.step(num_tokens, &self.recorder.scheduler().stats());
    }

    /// Ends all that a failed step was for.
    pub(super) fn fail(&mut self, step: u64, fault: &StepFault) {
        self.steps.num_failed += 1;
        self.note_fault(step, fault);
        self.steps.done(step);
        let ended = match self.recorder.fail(step) {
            Ok(ended) => ended,
            Err(error) => return self.cannot_go_on(&error.to_string()),
        };
        // One that was for nobody any more, since the step before had failed, says nothing new.
        self.steps.failed_in_a_row += u32::from(!ended.is_empty());
        let why = fault.to_string();
        for finished in &ended {
            if let Some(live) = self.lives.get_mut(&finished.id.request) {
                live.fault(finished.id.sample, &why);
            }
        }
        self.finished(&ended);
        self.shared.metrics.step_failed(&self.recorder.scheduler().stats());
        if matches!(fault, StepFault::Lost(_)) {
            self.cannot_go_on(&why);
        } else if self.steps.failed_in_a_row >= MOST_FAILED_STEPS {
            self.cannot_go_on(&format!("{MOST_FAILED_STEPS} steps failed one after the other; the last: {why}"));
        }
    }

    /// Ends the sequence of a row that gave no token; others of its step go on.
    fn end_row(&mut self, id: SequenceId, why: &str) {
        if let Some(live) = self.lives.get_mut(&id.request) {
            live.fault(id.sample, why);
        }
        let ended = self.recorder.finish(id, FinishReason::Error);
        self.finished(ended.as_slice());
    }
}
