//! What is known of a request when it has ended: what its metrics, its line in the log and its span are made of.

use std::time::Duration;

use crate::engine::SampleEnd;
use crate::sampling::SamplingParams;
use crate::trace::TraceContext;

/// What was asked for: the same for all samples of a request. Never its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// The caller's name for it.
    pub id: String,
    /// Tokens of the prompt.
    pub num_prompt_tokens: usize,
    /// Answers to the prompt.
    pub n: u32,
    /// Most tokens of each; none if as many as fit.
    pub max_tokens: Option<usize>,
    /// As given: 0 is greedy.
    pub temperature: f32,
    /// As given.
    pub top_p: f32,
    /// The caller's span, of which the request's is a child.
    pub trace: Option<TraceContext>,
}

impl Asked {
    /// Of a request with these parameters and this `traceparent`; one that is malformed counts as none.
    pub fn new(id: &str, num_prompt_tokens: usize, params: &SamplingParams, traceparent: Option<&str>) -> Asked {
        Asked {
            id: id.to_owned(),
            num_prompt_tokens,
            n: params.n,
            max_tokens: params.max_tokens,
            temperature: params.temperature,
            top_p: params.top_p,
            trace: traceparent.and_then(TraceContext::parse),
        }
    }
}

/// One sample at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended<'a> {
    /// The request.
    pub asked: &'a Asked,
    /// What its reader is told.
    pub end: &'a SampleEnd,
    /// Tokens of the prompt that were in the cache when it first started.
    pub num_cached_tokens: usize,
    /// With the last sample of the request to end: the most tokens that any of them has.
    pub longest: Option<usize>,
}

impl Ended<'_> {
    /// One line at level info, target `tegula::request`: numbers and names, never what was said.
    pub fn log(&self) {
        let Ended { asked, end, .. } = self;
        let seconds = |time: Option<Duration>| time.map(|time| time.as_micros() as f64 / 1e6);
        tracing::info!(
            target: "tegula::request",
            id = asked.id,
            sample = end.sample,
            reason = end.reason.as_str(),
            prompt_tokens = asked.num_prompt_tokens,
            cached_tokens = self.num_cached_tokens,
            completion_tokens = end.num_output_tokens,
            preemptions = end.num_preemptions,
            queue_s = seconds(Some(end.times.queue())),
            ttft_s = seconds(end.times.time_to_first_token()),
            tpot_s = seconds(end.times.time_per_output_token(end.num_output_tokens)),
            e2e_s = seconds(Some(end.times.end_to_end())),
            trace_id = asked.trace.map(|trace| tracing::field::display(trace.trace_id())),
            error = end.error,
            "request ended"
        );
    }
}

/// Somebody else who wants to know of the end of each sample: an exporter of spans, a bill. Called on the engine's thread,
/// so it must not wait.
pub trait Observer: Send + Sync {
    /// A sample has ended.
    fn ended(&self, ended: &Ended<'_>);
}
