//! What is asked of the scheduler.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::config::SchedulerConfig;
use crate::kv::CacheKey;

/// A request for one or more continuations of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewRequest {
    /// Chosen by the caller; no two requests in the scheduler have the same.
    pub request: u64,
    /// At least one token.
    pub prompt: Arc<[u32]>,
    /// What the keys and values depend on besides the tokens.
    pub key: CacheKey,
    /// Continuations wanted.
    pub n: u32,
    /// Lower is served first; among equals, who came first.
    pub priority: i32,
    /// Most tokens of each continuation; without it, as many as the model takes.
    pub max_tokens: Option<usize>,
    /// Stop tokens end a continuation from this many tokens on only.
    pub min_tokens: usize,
    /// Tokens that end a continuation, the end-of-text tokens among them unless they are to be ignored.
    pub stop_token_ids: Vec<u32>,
    /// Computes the whole prompt, whatever is cached: for log-probabilities of its tokens. The first sample does; the
    /// others wait for it, and find what it computed.
    pub skip_reading_prefix_cache: bool,
}

impl NewRequest {
    /// One continuation of a prompt, as long as it may be.
    pub fn new(request: u64, prompt: impl Into<Arc<[u32]>>, key: CacheKey) -> NewRequest {
        NewRequest {
            request,
            prompt: prompt.into(),
            key,
            n: 1,
            priority: 0,
            max_tokens: None,
            min_tokens: 0,
            stop_token_ids: vec![],
            skip_reading_prefix_cache: false,
        }
    }

    /// The sequences that it will be.
    pub fn sequences(&self) -> impl Iterator<Item = SequenceId> + use<> {
        let request = self.request;
        (0..self.n).map(move |sample| SequenceId { request, sample })
    }

    /// Whether it can ever be served.
    ///
    /// # Errors
    /// If not: why.
    pub fn admissible(&self, config: &SchedulerConfig) -> Result<(), AdmissionError> {
        let num_tokens = self.prompt.len();
        if num_tokens == 0 {
            return Err(AdmissionError::EmptyPrompt);
        }
        if self.n == 0 || self.max_tokens == Some(0) {
            return Err(AdmissionError::NothingToGenerate);
        }
        if num_tokens >= config.max_model_len {
            return Err(AdmissionError::PromptTooLong { num_tokens, max_model_len: config.max_model_len });
        }
        if num_tokens > config.capacity() {
            return Err(AdmissionError::PromptExceedsCache { num_tokens, capacity: config.capacity() });
        }
        Ok(())
    }

    /// Tokens at which each of its sequences ends.
    pub(super) fn max_len(&self, config: &SchedulerConfig) -> usize {
        let wanted = self.max_tokens.map_or(usize::MAX, |most| self.prompt.len().saturating_add(most));
        wanted.min(config.max_len())
    }
}

/// Why a request can never be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AdmissionError {
    /// There is nothing to continue.
    #[error("the prompt is empty; it must have at least one token")]
    EmptyPrompt,
    /// No continuation, or one of no token.
    #[error("nothing is to be generated; n and max_tokens must be at least 1")]
    NothingToGenerate,
    /// The model takes no prompt of this length and one token more.
    #[error(
        "the prompt has {num_tokens} tokens; the maximum context length is {max_model_len} tokens, one of them for the answer"
    )]
    PromptTooLong { num_tokens: usize, max_model_len: usize },
    /// The prompt alone is larger than the whole cache.
    #[error("the prompt has {num_tokens} tokens; the KV cache has room for {capacity}")]
    PromptExceedsCache { num_tokens: usize, capacity: usize },
    /// The id is taken.
    #[error("a request {0} is being served already")]
    DuplicateRequest(u64),
}

/// One continuation of one request. As text: `17.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct SequenceId {
    /// The request.
    pub request: u64,
    /// Which of its continuations, from 0.
    pub sample: u32,
}

impl fmt::Display for SequenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.request, self.sample)
    }
}

impl From<SequenceId> for String {
    fn from(id: SequenceId) -> String {
        id.to_string()
    }
}

impl FromStr for SequenceId {
    type Err = String;

    fn from_str(text: &str) -> Result<SequenceId, String> {
        let parsed = || {
            let (request, sample) = text.split_once('.')?;
            Some(SequenceId { request: request.parse().ok()?, sample: sample.parse().ok()? })
        };
        parsed().ok_or_else(|| format!("`{text}` is no sequence; one is written `REQUEST.SAMPLE`, as in `17.0`"))
    }
}

impl TryFrom<String> for SequenceId {
    type Error = String;

    fn try_from(text: String) -> Result<SequenceId, String> {
        text.parse()
    }
}
