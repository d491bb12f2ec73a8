//! What a generation yields.

use std::time::{Duration, Instant};

use crate::sampling::TokenLogprobs;
use crate::schedule::FinishReason;
use crate::text::StopReason;

/// News of a request. Of each sample: its tokens in order, then its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// Once, when the request is first scheduled.
    Started {
        /// Tokens of the prompt.
        num_prompt_tokens: usize,
        /// Of those, tokens whose keys and values were in the cache.
        num_cached_tokens: usize,
    },
    /// Once, before the first token, if they were asked for: one for each token of the prompt, none for the first.
    PromptLogprobs(Vec<Option<TokenLogprobs>>),
    /// One more token.
    Token(TokenUpdate),
    /// Once for each sample.
    Finished(SampleEnd),
}

/// One more token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenUpdate {
    /// Which answer, from 0.
    pub sample: u32,
    /// Which of its tokens, from 0.
    pub index: usize,
    /// The token.
    pub token: u32,
    /// More of the text, perhaps nothing: a character may lack bytes, a stop string may have begun.
    pub text: String,
    /// If they were asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// It is the last: its answer's end follows at once.
    pub last: bool,
}

/// The end of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleEnd {
    /// Which answer, from 0.
    pub sample: u32,
    /// Why.
    pub reason: FinishReason,
    /// What stopped it, if the reason is that.
    pub stop: Option<StopReason>,
    /// The rest of the text, which was held back.
    pub text: String,
    /// Tokens of the answer.
    pub num_output_tokens: usize,
    /// How often it lost its blocks to better ones.
    pub num_preemptions: u32,
    /// What went wrong, if the reason is that.
    pub error: Option<String>,
    /// When what happened.
    pub times: Times,
}

/// When what happened to an answer, on one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The request came in, before its text became tokens.
    pub arrival: Instant,
    /// The engine took it.
    pub queued: Instant,
    /// It first got room.
    pub scheduled: Option<Instant>,
    /// Its first token was known.
    pub first_token: Option<Instant>,
    /// Its last token was known.
    pub last_token: Option<Instant>,
    /// It ended.
    pub finished: Instant,
}

impl Times {
    /// From its arrival to its first token.
    pub fn time_to_first_token(&self) -> Option<Duration> {
        Some(self.first_token?.saturating_duration_since(self.arrival))
    }

    /// From its arrival to its end.
    pub fn end_to_end(&self) -> Duration {
        self.finished.saturating_duration_since(self.arrival)
    }
}
