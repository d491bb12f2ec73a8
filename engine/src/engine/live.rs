//! A request as the engine thread keeps it.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::command::Submission;
use super::deliver::{End, Outbox};
use super::device::{Sampled, SequenceSpec};
use super::shared::Place;
use super::update::{SampleEnd, Times, TokenUpdate, Update};
use crate::metrics::{Asked, Metrics};
use crate::sampling::TokenLogprobs;
use crate::schedule::{FinishReason, Finished, NewToken, SequenceId};
use crate::text::{Detokenizer, StopReason};
use crate::tokenizer::Tokenizer;

/// A request whose samples have not all ended.
#[derive(Debug)]
pub struct Live {
    request: u64,
    /// One for each sample.
    pub specs: Vec<Arc<SequenceSpec>>,
    samples: Vec<Sample>,
    visible: Vec<u32>,
    updates: UnboundedSender<Update>,
    asked: Arc<Asked>,
    place: Place,
    /// Those of the prompt, until they are told.
    prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// Once a sample has started: tokens of the prompt that were in the cache for the first.
    num_cached_tokens: Option<usize>,
    /// Whether a sample has a token.
    has_tokens: bool,
    /// Samples that have not ended.
    left: usize,
}

#[derive(Debug)]
struct Sample {
    /// From its first token on: texts of stop strings are not copied for samples that wait.
    text: Option<Detokenizer>,
    answer: Vec<u32>,
    stop: Option<StopReason>,
    error: Option<String>,
    num_cached_tokens: usize,
    times: Times,
    ended: bool,
}

/// A token of a sample.
pub struct Push<'a> {
    pub tokenizer: &'a Tokenizer,
    pub new: &'a NewToken,
    pub sampled: &'a mut Sampled,
    /// Whether the scheduler ends the answer with it.
    pub last: bool,
    pub now: Instant,
    pub metrics: &'a Metrics,
}

impl Live {
    pub fn new(submission: Submission) -> Live {
        let Submission { new, specs, asked, visible, place, updates, arrival, queued } = submission;
        let times = Times { arrival, queued, scheduled: None, first_token: None, last_token: None, finished: queued };
        let sample = |_: &Arc<SequenceSpec>| Sample {
            text: None,
            answer: vec![],
            stop: None,
            error: None,
            num_cached_tokens: 0,
            times,
            ended: false,
        };
        let samples: Vec<Sample> = specs.iter().map(sample).collect();
        let wanted = specs.first().filter(|spec| spec.params.prompt_logprobs.is_some());
        let prompt_logprobs = wanted.map(|spec| vec![None; spec.prompt.len()]);
        Live {
            request: new.request,
            left: samples.len(),
            specs,
            samples,
            visible,
            updates,
            asked: Arc::new(asked),
            place,
            prompt_logprobs,
            num_cached_tokens: None,
            has_tokens: false,
        }
    }

    /// A sample got room.
    pub fn started(&mut self, sample: u32, num_cached_tokens: usize, now: Instant, out: &mut Outbox) {
        let of = &mut self.samples[sample as usize];
        if of.times.scheduled.is_none() {
            (of.times.scheduled, of.num_cached_tokens) = (Some(now), num_cached_tokens);
            self.place.started();
        }
        if self.num_cached_tokens.is_none() {
            self.num_cached_tokens = Some(num_cached_tokens);
            let num_prompt_tokens = self.asked.num_prompt_tokens;
            out.post(&self.updates, Update::Started { num_prompt_tokens, num_cached_tokens });
        }
    }

    /// The answer so far, of which a resumed run begins.
    pub fn answer(&self, sample: u32) -> &[u32] {
        &self.samples[sample as usize].answer
    }

    /// The log-probabilities of a token of the prompt. Computed again by each sample, and after a preemption: to the same.
    pub fn prompt_logprobs(&mut self, position: usize, value: TokenLogprobs) {
        if let Some(to) = self.prompt_logprobs.as_mut().and_then(|all| all.get_mut(position)) {
            *to = Some(value);
        }
    }

    /// Whether log-probabilities of the prompt are wanted that nobody computed: the sample that would have had failed.
    pub fn lacks_prompt_logprobs(&self) -> bool {
        self.prompt_logprobs.as_ref().is_some_and(|all| all.iter().skip(1).any(Option::is_none))
    }

    /// What went wrong with a sample.
    pub fn fault(&mut self, sample: u32, why: &str) {
        self.samples[sample as usize].error.get_or_insert_with(|| why.to_owned());
    }

    /// Takes in a token. Whether its text ended the answer.
    pub fn push(&mut self, token: Push<'_>, out: &mut Outbox) -> bool {
        let Push { tokenizer, new, sampled, last, now, metrics } = token;
        if !std::mem::replace(&mut self.has_tokens, true) {
            metrics.prompt(self.asked.num_prompt_tokens, self.num_cached_tokens.unwrap_or(0));
            if let Some(all) = self.prompt_logprobs.take() {
                out.post(&self.updates, Update::PromptLogprobs(all));
            }
        }
        let sample = &mut self.samples[new.id.sample as usize];
        sample.answer.push(new.token);
        match sample.times.last_token.replace(now) {
            Some(before) => metrics.next_token(now.saturating_duration_since(before)),
            None => metrics.first_token(now.saturating_duration_since(sample.times.arrival)),
        }
        sample.times.first_token.get_or_insert(now);
        let params = &self.specs[new.id.sample as usize].params;
        let text = sample.text.get_or_insert_with(|| Detokenizer::new(params).visible(&self.visible));
        let delta = text.push(tokenizer, new.token);
        let stopped = delta.stopped.is_some();
        sample.stop = delta.stopped;
        let update = TokenUpdate {
            sample: new.id.sample,
            index: new.index,
            token: new.token,
            text: delta.text,
            logprobs: sampled.logprobs.take(),
            last: last || stopped,
        };
        out.post(&self.updates, Update::Token(update));
        stopped
    }

    /// Ends a sample. Whether it was the last.
    pub fn finish(&mut self, finished: &Finished, now: Instant, out: &mut Outbox) -> bool {
        let number = finished.id.sample;
        let sample = &mut self.samples[number as usize];
        if std::mem::replace(&mut sample.ended, true) {
            return self.left == 0;
        }
        self.left -= 1;
        if sample.times.scheduled.is_none() {
            self.place.started();
        }
        let rest = sample.text.as_mut().map(Detokenizer::finish).unwrap_or_default();
        let stop = sample.stop.take().or(rest.stopped);
        // What the text says about the end comes before what the number of tokens says.
        let reason = match (finished.reason, &stop) {
            (FinishReason::Length, Some(_)) => FinishReason::Stop,
            (reason, _) => reason,
        };
        let end = SampleEnd {
            sample: number,
            reason,
            stop: stop.filter(|_| reason == FinishReason::Stop),
            text: rest.text,
            num_output_tokens: finished.num_output_tokens,
            num_preemptions: finished.num_preemptions,
            error: sample.error.take().filter(|_| reason == FinishReason::Error),
            times: Times { finished: now, ..sample.times },
        };
        let num_cached_tokens = sample.num_cached_tokens;
        let longest = self.samples.iter().map(|sample| sample.answer.len()).max();
        let longest = longest.filter(|_| self.left == 0);
        out.end(&self.updates, Update::Finished(end), End { asked: self.asked.clone(), num_cached_tokens, longest });
        self.left == 0
    }

    /// Ends all samples that have not ended, for a reason that the scheduler knows nothing of.
    pub fn refuse(&mut self, reason: FinishReason, why: &str, now: Instant, out: &mut Outbox) {
        for sample in 0..self.samples.len() as u32 {
            self.fault(sample, why);
            let of = &self.samples[sample as usize];
            let finished = Finished {
                id: SequenceId { request: self.request, sample },
                reason,
                num_prompt_tokens: self.asked.num_prompt_tokens,
                num_output_tokens: of.answer.len(),
                num_cached_tokens: of.num_cached_tokens,
                num_preemptions: 0,
            };
            self.finish(&finished, now, out);
        }
    }

    /// Its samples.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceId> + use<> {
        let request = self.request;
        (0..self.samples.len() as u32).map(move |sample| SequenceId { request, sample })
    }
}
