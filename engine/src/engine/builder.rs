//! How an engine is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::device::StepModel;
use crate::Error;
use crate::chat::ChatTemplate;
use crate::schedule::SchedulerConfig;
use crate::tokenizer::Tokenizer;

/// What an engine is to be. Everything has a default.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    pub(super) name: String,
    pub(super) max_model_len: Option<usize>,
    pub(super) max_num_seqs: usize,
    pub(super) max_num_batched_tokens: Option<usize>,
    pub(super) long_prefill_token_threshold: usize,
    pub(super) overlap: bool,
    pub(super) prefix_cache: bool,
    pub(super) max_waiting: usize,
    pub(super) max_logprobs: u32,
    pub(super) heartbeat: Duration,
    pub(super) fault_log: Option<PathBuf>,
}

impl EngineBuilder {
    pub(super) fn new(name: impl Into<String>) -> EngineBuilder {
        EngineBuilder {
            name: name.into(),
            max_model_len: None,
            max_num_seqs: 64,
            max_num_batched_tokens: None,
            long_prefill_token_threshold: 0,
            overlap: true,
            prefix_cache: true,
            max_waiting: 1024,
            max_logprobs: 20,
            heartbeat: Duration::from_secs(10),
            fault_log: None,
        }
    }

    /// The model's name in metrics and answers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Most tokens of a sequence, prompt and answer together; the model's own length if unset.
    pub fn max_model_len(mut self, tokens: usize) -> Self {
        self.max_model_len = Some(tokens);
        self
    }

    /// Most sequences that run at once.
    pub fn max_num_seqs(mut self, sequences: usize) -> Self {
        self.max_num_seqs = sequences;
        self
    }

    /// Most tokens of a step.
    pub fn max_num_batched_tokens(mut self, tokens: usize) -> Self {
        self.max_num_batched_tokens = Some(tokens);
        self
    }

    /// Most tokens of one sequence in a step; 0 for no such limit.
    pub fn long_prefill_token_threshold(mut self, tokens: usize) -> Self {
        self.long_prefill_token_threshold = tokens;
        self
    }

    /// Whether the next step is planned while one runs. Answers are the same.
    pub fn overlap(mut self, overlap: bool) -> Self {
        self.overlap = overlap;
        self
    }

    /// Whether requests find what others computed. Answers are the same.
    pub fn prefix_cache(mut self, prefix_cache: bool) -> Self {
        self.prefix_cache = prefix_cache;
        self
    }

    /// Most requests that may wait; one more is refused.
    pub fn max_waiting(mut self, requests: usize) -> Self {
        self.max_waiting = requests;
        self
    }

    /// Most alternatives that log-probabilities are given of.
    pub fn max_logprobs(mut self, alternatives: u32) -> Self {
        self.max_logprobs = alternatives;
        self
    }

    /// How long the device may be silent, with work queued, before the engine counts as stalled.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Where the events that lead to a failed step are written. They contain prompts.
    pub fn fault_log(mut self, path: impl Into<PathBuf>) -> Self {
        self.fault_log = Some(path.into());
        self
    }

    /// An engine on a step model.
    ///
    /// # Errors
    /// If the limits make no sense together.
    pub fn build_on(
        self,
        model: impl StepModel,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
    ) -> Result<Engine, Error> {
        Engine::start(self, model, tokenizer, template)
    }

    /// The scheduler's limits for this model.
    pub(super) fn scheduler(&self, info: &super::ModelInfo) -> SchedulerConfig {
        let max_model_len = self.max_model_len.unwrap_or(info.context).min(info.context);
        let most = self.max_num_batched_tokens.unwrap_or(if info.device.starts_with("cuda") { 2048 } else { 512 });
        SchedulerConfig {
            block_size: info.block_size,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: most.max(self.max_num_seqs),
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            enable_prefix_caching: self.prefix_cache,
            max_concurrent_batches: if self.overlap { 2 } else { 1 },
            ..SchedulerConfig::new(info.num_blocks, max_model_len)
        }
    }
}
