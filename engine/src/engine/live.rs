//! A request as the engine thread keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::command::Submission;
use super::device::{Sampled, SequenceSpec};
use super::update::{SampleEnd, Times, TokenUpdate, Update};
use crate::sampling::TokenLogprobs;
use crate::schedule::{FinishReason, Finished, NewToken};
use crate::text::{Detokenizer, StopReason};
use crate::tokenizer::Tokenizer;

/// A request whose samples have not all ended.
#[derive(Debug)]
pub struct Live {
    /// One for each sample.
    pub specs: Vec<Arc<SequenceSpec>>,
    samples: Vec<Sample>,
    updates: UnboundedSender<Update>,
    prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    started: bool,
    /// Samples that have not ended.
    pub left: usize,
}

#[derive(Debug)]
struct Sample {
    text: Detokenizer,
    answer: Vec<u32>,
    stop: Option<StopReason>,
    error: Option<String>,
    times: Times,
}

impl Live {
    pub fn new(submission: Submission) -> Live {
        let Submission { specs, updates, arrival, queued, visible, .. } = submission;
        let times = Times { arrival, queued, scheduled: None, first_token: None, last_token: None, finished: queued };
        let sample = |spec: &Arc<SequenceSpec>| Sample {
            text: Detokenizer::new(&spec.params).visible(&visible),
            answer: vec![],
            stop: None,
            error: None,
            times,
        };
        let samples: Vec<Sample> = specs.iter().map(sample).collect();
        let wanted = specs.first().filter(|spec| spec.params.prompt_logprobs.is_some());
        let prompt_logprobs = wanted.map(|spec| vec![None; spec.prompt.len()]);
        Live { left: samples.len(), specs, samples, updates, prompt_logprobs, started: false }
    }

    /// A sample got room.
    pub fn started(&mut self, sample: u32, num_cached_tokens: usize, now: Instant, waiting: &AtomicUsize) {
        self.samples[sample as usize].times.scheduled.get_or_insert(now);
        if !std::mem::replace(&mut self.started, true) {
            waiting.fetch_sub(1, Ordering::Relaxed);
            let num_prompt_tokens = self.specs[0].prompt.len();
            self.send(Update::Started { num_prompt_tokens, num_cached_tokens });
        }
    }

    /// The answer so far, of which a resumed run begins.
    pub fn answer(&self, sample: u32) -> &[u32] {
        &self.samples[sample as usize].answer
    }

    /// The log-probabilities of a token of the prompt.
    pub fn prompt_logprobs(&mut self, position: usize, value: TokenLogprobs) {
        if let Some(to) = self.prompt_logprobs.as_mut().and_then(|all| all.get_mut(position)) {
            *to = Some(value);
        }
    }

    /// What went wrong with a sample.
    pub fn fault(&mut self, sample: u32, why: &str) {
        self.samples[sample as usize].error.get_or_insert_with(|| why.to_owned());
    }

    /// Takes in a token. Whether its text ended the answer.
    pub fn push(&mut self, tokenizer: &Tokenizer, new: &NewToken, sampled: &mut Sampled, now: Instant) -> bool {
        if let Some(all) = self.prompt_logprobs.take() {
            self.send(Update::PromptLogprobs(all));
        }
        let sample = &mut self.samples[new.id.sample as usize];
        sample.answer.push(new.token);
        sample.times.first_token.get_or_insert(now);
        sample.times.last_token = Some(now);
        let delta = sample.text.push(tokenizer, new.token);
        let stopped = delta.stopped.is_some();
        sample.stop = delta.stopped;
        let update = TokenUpdate {
            sample: new.id.sample,
            index: new.index,
            token: new.token,
            text: delta.text,
            logprobs: sampled.logprobs.take(),
        };
        self.send(Update::Token(update));
        stopped
    }

    /// Ends a sample.
    pub fn finish(&mut self, finished: &Finished, now: Instant) {
        let number = finished.id.sample;
        let sample = &mut self.samples[number as usize];
        let rest = sample.text.finish();
        let stop = sample.stop.take().or(rest.stopped);
        // What the text says about the end comes before what the number of tokens says.
        let reason = match (finished.reason, &stop) {
            (FinishReason::Length, Some(_)) => FinishReason::Stop,
            (reason, _) => reason,
        };
        let end = SampleEnd {
            sample: number,
            reason,
            stop,
            text: rest.text,
            num_output_tokens: finished.num_output_tokens,
            num_preemptions: finished.num_preemptions,
            error: sample.error.take(),
            times: Times { finished: now, ..sample.times },
        };
        self.left -= 1;
        self.send(Update::Finished(end));
    }

    /// Whether it never started.
    pub fn waits(&self) -> bool {
        !self.started
    }

    fn send(&self, update: Update) {
        // A reader that has gone away has cancelled the request.
        let _ = self.updates.send(update);
    }
}
