//! How an engine is made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tegula::Device;

use super::Engine;
use super::device::{DecoderModel, ModelInfo, StepModel};
use super::memory::{KvMemory, MemoryPlan, free_host_memory};
use crate::Error;
use crate::chat::ChatTemplate;
use crate::gguf::Gguf;
use crate::metrics::{Labels, Observer};
use crate::model::{Activations, kv::BLOCK};
use crate::sampling::Limits;
use crate::schedule::SchedulerConfig;
use crate::tokenizer::Tokenizer;

/// Most tokens of a step, unless something else is asked for: on a processor a step must be short, since everybody's next
/// token waits for it; a GPU needs many to be busy.
const CPU_STEP: usize = 512;
const GPU_STEP: usize = 2048;

/// Most that may be asked for: far more than any device is quick with, and few enough for sizes to be reckoned with.
const MOST_SEQS: usize = 1 << 16;
const MOST_STEP: usize = 1 << 20;

/// What an engine is to be. Everything has a default.
#[derive(Clone)]
pub struct EngineBuilder {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) kv_memory: KvMemory,
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
    pub(super) observers: Vec<Arc<dyn Observer>>,
}

impl EngineBuilder {
    pub(super) fn new(name: impl Into<String>) -> EngineBuilder {
        EngineBuilder {
            name: name.into(),
            index: 0,
            kv_memory: KvMemory::Auto,
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
            observers: vec![],
        }
    }

    /// The model's name in metrics and answers.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Tells engines of one process apart in metrics; 0 if unset.
    pub fn index(mut self, index: u32) -> Self {
        self.index = index;
        self
    }

    /// Memory for keys and values; [`KvMemory::Auto`] if unset.
    pub fn kv_memory(mut self, memory: KvMemory) -> Self {
        self.kv_memory = memory;
        self
    }

    /// Most tokens of a sequence, prompt and answer together; as many as the model was made for if unset.
    pub fn max_model_len(mut self, tokens: usize) -> Self {
        self.max_model_len = Some(tokens);
        self
    }

    /// Most sequences that run at once, at most 65,536; 64 if unset.
    pub fn max_num_seqs(mut self, sequences: usize) -> Self {
        self.max_num_seqs = sequences;
        self
    }

    /// Most tokens of a step, at least [`max_num_seqs`](Self::max_num_seqs) and at most 1,048,576; 512 on processors and
    /// 2,048 on GPUs if unset.
    pub fn max_num_batched_tokens(mut self, tokens: usize) -> Self {
        self.max_num_batched_tokens = Some(tokens);
        self
    }

    /// Most tokens of one sequence in a step, so that long prompts are computed beside others; 0, as if unset, for no such
    /// limit.
    pub fn long_prefill_token_threshold(mut self, tokens: usize) -> Self {
        self.long_prefill_token_threshold = tokens;
        self
    }

    /// Whether the next step is planned and queued while one runs, which it is if unset. Answers are the same.
    pub fn overlap(mut self, overlap: bool) -> Self {
        self.overlap = overlap;
        self
    }

    /// Whether requests find what others computed, which they do if unset. Answers are the same.
    pub fn prefix_cache(mut self, prefix_cache: bool) -> Self {
        self.prefix_cache = prefix_cache;
        self
    }

    /// Most sequences that may wait, at least 1: a request with which there were more is refused, unless none waits. 1,024 if
    /// unset.
    pub fn max_waiting(mut self, sequences: usize) -> Self {
        self.max_waiting = sequences;
        self
    }

    /// Most alternatives that log-probabilities are given of; 20 if unset.
    pub fn max_logprobs(mut self, alternatives: u32) -> Self {
        self.max_logprobs = alternatives;
        self
    }

    /// How long the device may be silent, with work queued, before the engine counts as stalled: longer than its longest
    /// layer takes. 10 seconds if unset.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// A folder for the events that lead to failed steps: a file for each of the first few, for
    /// [`FaultLog::read`](super::FaultLog::read). They contain prompts and answers; only their owner may read them.
    /// Nothing is written if unset.
    pub fn fault_log(mut self, folder: impl Into<PathBuf>) -> Self {
        self.fault_log = Some(folder.into());
        self
    }

    /// Somebody who is told of each sample's end. There may be several.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// An engine on the model of a file.
    ///
    /// ```no_run
    /// use tegula::Device;
    /// use tegula_engine::engine::Engine;
    /// use tegula_engine::gguf::Gguf;
    /// use tegula_engine::model::Activations;
    ///
    /// let file = Gguf::open("model.gguf")?;
    /// let engine = Engine::builder("model").max_num_seqs(16).build(&file, &Device::cpu(), Activations::Q8)?;
    /// println!("{}", engine.memory());
    /// # Ok::<(), tegula_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file is no model that can run, limits make no sense, or memory does not suffice.
    pub fn build(self, file: &Gguf, device: &Device, activations: Activations) -> Result<Engine, Error> {
        let tokenizer = Tokenizer::from_gguf(file)?;
        let template = match file.get::<&str>("tokenizer.chat_template")? {
            Some(_) => Some(ChatTemplate::from_gguf(file, &tokenizer)?),
            None => None,
        };
        self.build_with(file, device, activations, Arc::new(tokenizer), template)
    }

    /// As [`EngineBuilder::build`], for who has the tokenizer and the template of the file already, or others.
    ///
    /// # Errors
    /// As [`EngineBuilder::build`].
    pub fn build_with(
        self,
        file: &Gguf,
        device: &Device,
        activations: Activations,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
    ) -> Result<Engine, Error> {
        self.check()?;
        let mut model = DecoderModel::load(file, device, activations)?;
        let max_model_len = self.model_len(model.context())?;
        let step_tokens = self.step_tokens(&device.name())?;
        let free = free_memory(device);
        let step = model.step_bytes(step_tokens, self.max_num_seqs);
        let left = free.map(|free| free.saturating_sub(step));
        let (block_bytes, most) =
            (model.block_bytes(), max_model_len.div_ceil(BLOCK).saturating_mul(self.max_num_seqs));
        let blocks = self.kv_memory.blocks(left, block_bytes, BLOCK, most as u64).map_err(wrong)?;
        model.prepare(blocks, step_tokens, self.max_num_seqs)?;
        model.warm()?;
        let memory = MemoryPlan { step, free, ..MemoryPlan::of(&model.info(), max_model_len) };
        Engine::start(self, model, tokenizer, template, memory)
    }

    /// An engine on a step model of one's own, which has its cache already: [`kv_memory`](Self::kv_memory) does not count.
    ///
    /// # Errors
    /// If limits make no sense, together or for this model.
    pub fn build_on(
        self,
        model: impl StepModel,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
    ) -> Result<Engine, Error> {
        let info = model.info();
        let max_model_len = self.model_len(info.context)?;
        let memory = MemoryPlan::of(&info, max_model_len);
        Engine::start(self, model, tokenizer, template, memory)
    }

    /// What can be wrong whatever the model.
    fn check(&self) -> Result<(), Error> {
        let least = |name: &str, found: usize, least: usize| match found {
            found if found < least => Err(wrong(format!("{name} is {found}; it must be at least {least}"))),
            _ => Ok(()),
        };
        let most = |name: &str, found: usize, most: usize| match found {
            found if found > most => Err(wrong(format!("{name} is {found}; it may be at most {most}"))),
            _ => Ok(()),
        };
        least("max_num_seqs", self.max_num_seqs, 1)?;
        most("max_num_seqs", self.max_num_seqs, MOST_SEQS)?;
        most("max_num_batched_tokens", self.max_num_batched_tokens.unwrap_or(0), MOST_STEP)?;
        least("max_waiting", self.max_waiting, 1)?;
        least("max_model_len", self.max_model_len.unwrap_or(2), 2)?;
        if self.heartbeat.is_zero() {
            return Err(wrong("heartbeat is 0; it must be longer than the device's longest silence".into()));
        }
        Ok(())
    }

    /// Most tokens of a sequence, for a model that was made for so many.
    pub(super) fn model_len(&self, context: usize) -> Result<usize, Error> {
        let asked = self.max_model_len.unwrap_or(context);
        if asked > context {
            return Err(wrong(format!(
                "max_model_len is {asked}; the model was made for sequences of at most {context} tokens"
            )));
        }
        Ok(asked)
    }

    /// Most tokens of a step on a device.
    pub(super) fn step_tokens(&self, device: &str) -> Result<usize, Error> {
        let default = if device.starts_with("cuda") { GPU_STEP } else { CPU_STEP };
        let tokens = self.max_num_batched_tokens.unwrap_or(default.max(self.max_num_seqs));
        if tokens < self.max_num_seqs {
            return Err(wrong(format!(
                "max_num_batched_tokens is {tokens}, and max_num_seqs {}: every sequence that runs has a token in every \
                 step, so the former must be at least the latter",
                self.max_num_seqs
            )));
        }
        Ok(tokens)
    }

    /// The scheduler's limits for this model.
    pub(super) fn scheduler(&self, info: &ModelInfo) -> Result<SchedulerConfig, Error> {
        self.check()?;
        let config = SchedulerConfig {
            block_size: info.block_size,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.step_tokens(&info.device)?,
            long_prefill_token_threshold: self.long_prefill_token_threshold,
            enable_prefix_caching: self.prefix_cache,
            max_concurrent_batches: if self.overlap { 2 } else { 1 },
            ..SchedulerConfig::new(info.num_blocks, self.model_len(info.context)?)
        };
        config.validate().map_err(|e| wrong(e.to_string()))?;
        Ok(config)
    }

    /// The bounds of parameters.
    pub(super) fn limits(&self, info: &ModelInfo, tokenizer: &Tokenizer) -> Result<Limits, Error> {
        let (tokens, logits) = (tokenizer.vocab_size(), info.vocab_size);
        if tokens > logits {
            return Err(wrong(format!(
                "the tokenizer has {tokens} tokens, and the model logits for {logits}: they do not belong together"
            )));
        }
        // Logits beyond the tokenizer's tokens are padding.
        Ok(Limits { max_logprobs: self.max_logprobs, ..Limits::new(tokens) })
    }

    /// What its metrics say of it.
    pub(super) fn labels(&self, config: &SchedulerConfig) -> Labels {
        Labels {
            block_size: config.block_size,
            num_blocks: config.num_blocks as usize,
            enable_prefix_caching: config.enable_prefix_caching,
            ..Labels::new(&self.name, self.index, config.max_model_len)
        }
    }
}

/// Bytes of a device's memory that could be had now, if it can tell.
fn free_memory(device: &Device) -> Option<u64> {
    // GPUs have their own; all others compute in the host's.
    if device.name().starts_with("cuda") { None } else { free_host_memory() }
}

fn wrong(what: String) -> Error {
    Error::Usage(what)
}
