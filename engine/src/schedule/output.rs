//! What the scheduler reports.

use serde::{Deserialize, Serialize};

use super::request::SequenceId;
use crate::kv::{KvUsage, PrefixCacheStats};

/// What a completed step gave.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOutput {
    /// New tokens, one a sequence at most.
    pub tokens: Vec<NewToken>,
    /// Sequences that these tokens ended. They hold nothing any more.
    pub finished: Vec<Finished>,
}

/// One more token of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewToken {
    pub id: SequenceId,
    /// Which token of the answer, from 0; every one is reported once, in order.
    pub index: usize,
    pub token: u32,
}

/// The end of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    pub id: SequenceId,
    pub reason: FinishReason,
    pub num_prompt_tokens: usize,
    pub num_output_tokens: usize,
    /// Tokens of the prompt that did not have to be computed when the sequence first started.
    pub num_cached_tokens: usize,
    pub num_preemptions: u32,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// A stop token, or something the caller recognised as an end.
    Stop,
    /// As long as was asked for, or as fits.
    Length,
    /// Nobody wants it any more.
    Abort,
    /// A step that it was in failed.
    Error,
}

impl FinishReason {
    /// As answers, metrics and logs call it.
    pub fn as_str(self) -> &'static str {
        match self {
            FinishReason::Stop => "stop",
            FinishReason::Length => "length",
            FinishReason::Abort => "abort",
            FinishReason::Error => "error",
        }
    }
}

/// A report that does not belong to the step it claims to; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum StepError {
    /// Steps complete in the order in which they were planned.
    #[error("step {found} was reported; {}", match next { Some(step) => format!("step {step} is to be next"), None => "none is in flight".to_owned() })]
    OutOfOrder { found: u64, next: Option<u64> },
    /// One token belongs to each row that samples.
    #[error("{found} tokens were reported for step {step}; {expected} of its rows sample")]
    TokenCount { step: u64, expected: usize, found: usize },
}

/// What the metrics say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerStats {
    /// Sequences that run (`vllm:num_requests_running`).
    pub num_running: usize,
    /// Sequences that do not (`vllm:num_requests_waiting`).
    pub num_waiting: usize,
    /// Of those, sequences that wait for another to compute what both begin with; the rest wait for room.
    pub num_deferred: usize,
    /// Steps planned and not complete.
    pub num_in_flight: usize,
    /// So far (`vllm:num_preemptions`).
    pub num_preemptions: u64,
    /// Rows computed for a sequence that had ended or been preempted meanwhile, so far.
    pub num_discarded_rows: u64,
    pub kv: KvUsage,
    pub prefix_cache: PrefixCacheStats,
}
