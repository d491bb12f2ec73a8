//! What runs steps: on its own thread, in the order of their numbers.
//!
//! ```text
//!  engine thread ── Work ──▶ device thread ── Done{step, Result<StepResult, StepFault>} ──▶ engine thread
//! ```
//!
//! The engine thread decides, and knows no logits; the device thread computes, and knows no queues. What depends on a
//! sequence's tokens between two steps (rules on logits, grammars) lives here, since with a step planned ahead this is
//! where its tokens are first known.

mod decoder;
mod rows;
mod sampler;
mod scripted;
pub(super) mod thread;

use std::sync::Arc;

pub use decoder::DecoderModel;
pub use scripted::{Hook, Scripted, Step};

use super::health::Heartbeat;
use crate::grammar::Grammar;
use crate::sampling::{Draw, SamplingParams, TokenLogprobs};
use crate::schedule::{SequenceId, StepPlan};

/// A model with its cache, that runs steps.
pub trait StepModel: Send + 'static {
    /// What it is.
    fn info(&self) -> ModelInfo;

    /// Runs a step. `beat` wants a tick after each part of the work that cannot take long, as a layer.
    ///
    /// Steps come in the order of their numbers. What `work` says of sequences that end and start has to be taken in before
    /// anything can fail. After a step that failed, rows of the next that go on where it broke off are nobody's: they are
    /// computed with any tokens, or not at all, and have a [`Sampled`] of any token.
    ///
    /// # Errors
    /// If the step gave nothing. What is wrong with one row only is that row's [`Sampled::fault`].
    fn run(&mut self, work: &Work, beat: &Heartbeat) -> Result<StepResult, StepFault>;
}

/// What a model is.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Architecture, as GGUF names it.
    pub architecture: String,
    /// Where it runs.
    pub device: String,
    /// Fixes the weights and the numerics: keys and values are shared under one identity only. Of a file, its path, size and
    /// time of change, and the activations: not its content, which nobody reads for that.
    pub identity: String,
    /// Tokens that it has logits for.
    pub vocab_size: usize,
    /// Longest sequence that it was made for.
    pub context: usize,
    /// Tokens in a block of its cache.
    pub block_size: usize,
    /// Blocks of its cache.
    pub num_blocks: u32,
    /// Bytes of a block, all layers together.
    pub block_bytes: u64,
    /// Bytes of its weights as they lie in memory.
    pub weight_bytes: u64,
    /// What fixes the bits of its results besides the weights, for example the order of attention's operations: names and
    /// values.
    pub order: Vec<(String, String)>,
    /// The kernels that it launches.
    pub kernels: Vec<String>,
}

/// A step to run.
#[derive(Clone, Debug)]
pub struct Work {
    /// What to compute.
    pub plan: StepPlan,
    /// Sequences that start or resume with this step: before it.
    pub starts: Vec<Start>,
    /// Sequences that have ended or been preempted since the last step: nothing of them is needed any more. Before `starts`.
    pub ends: Vec<SequenceId>,
}

/// A sequence that starts or resumes. What was known of one of the same id is outdated.
#[derive(Clone, Debug)]
pub struct Start {
    /// The sequence.
    pub id: SequenceId,
    /// What it is.
    pub spec: Arc<SequenceSpec>,
    /// Its answer so far, when it resumes.
    pub answer: Vec<u32>,
}

/// All that choosing a sequence's tokens depends on.
#[derive(Clone, Debug)]
pub struct SequenceSpec {
    /// Its prompt.
    pub prompt: Arc<[u32]>,
    /// Its parameters.
    pub params: Arc<SamplingParams>,
    /// How its tokens are drawn.
    pub draw: Draw,
    /// Tokens that end it.
    pub ends: Arc<[u32]>,
    /// Its form, before the first token of the answer: one for all samples, to be cloned for who follows it.
    pub form: Option<Arc<Grammar>>,
}

/// What a step gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepResult {
    /// One for each row that samples, in order.
    pub rows: Vec<Sampled>,
    /// Log-probabilities of tokens of prompts that were asked for: the sequence, the token's position, the value.
    pub prompt_logprobs: Vec<(SequenceId, usize, TokenLogprobs)>,
}

/// What a row gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampled {
    /// The token; any if there is a fault.
    pub token: u32,
    /// If they were asked for.
    pub logprobs: Option<TokenLogprobs>,
    /// Why there is no token. It concerns this row's sequence alone.
    pub fault: Option<RowFault>,
}

/// A row that gave no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowFault {
    /// The model gave no logits that one can be drawn by.
    #[error("{0}")]
    NoLogits(String),
    /// The answer cannot go on in its form.
    #[error("{0}")]
    Form(String),
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepFault {
    /// This step gave nothing; others may.
    #[error("{0}")]
    Step(String),
    /// No step can run any more.
    #[error("the device is lost: {0}")]
    Lost(String),
}
