//! The engine: requests in, tokens out, on a model that many requests share.
//!
//! ```text
//!  callers ── Submit, Abort ──▶ engine thread ── Work ──▶ device thread
//!     ▲                          scheduler,               model, cache, rules, grammars
//!     └──── Update per token ─── texts, metrics  ◀─ Done ──┘
//! ```
//!
//! Callers check and prepare ([`Engine::generate`]); the engine thread decides and never fails because of a request; the
//! device thread computes. With overlap the next step is planned and queued while one runs.
//!
//! ```
//! use std::sync::Arc;
//! use tegula_engine::engine::{Engine, Request, Scripted, Update};
//! use tegula_engine::sampling::SamplingParams;
//! use tegula_engine::tokenizer::small::small;
//!
//! let tokenizer = Arc::new(small(&[], &["<end>"]));
//! let model = Scripted::new(257, 16, 64, 512).answers(&[72, 105]); // "Hi"
//! let engine = Engine::builder("demo").build_on(model, tokenizer, None)?;
//! let generation = engine.generate(Request::new(vec![1, 2, 3], SamplingParams::default()))?;
//! let text: String = generation
//!     .blocking()
//!     .filter_map(|update| if let Update::Token(token) = update { Some(token.text) } else { None })
//!     .collect();
//! assert_eq!(text, "Hi");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod command;
mod deliver;
mod device;
mod drain;
mod fault;
mod generation;
mod health;
mod live;
mod memory;
mod request;
mod run;
mod shared;
mod step;
mod submit;
mod threads;
mod update;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tegula::Device;
use tokio::sync::oneshot;

pub use builder::EngineBuilder;
pub use device::{
    DecoderModel, Hook, ModelInfo, RowFault, Sampled, Scripted, SequenceSpec, Start, Step, StepFault, StepModel,
    StepResult, Work,
};
pub use drain::Drain;
pub use fault::FaultLog;
pub use generation::{Answer, Completion, Generation};
pub use health::{Health, Heartbeat};
pub use memory::{KvMemory, KvMemoryError, MemoryPlan};
pub use request::{Request, SubmitError};
pub use shared::EngineStats;
pub use update::{SampleEnd, Times, TokenUpdate, Update};

use crate::Error;
use crate::chat::ChatTemplate;
use crate::gguf::Gguf;
use crate::grammar::{GrammarError, Grammars};
use crate::kv::IntegrityError;
use crate::metrics::Metrics;
use crate::model::Activations;
use crate::sampling::Limits;
use crate::schedule::{Scheduler, SchedulerConfig};
use crate::tokenizer::Tokenizer;
use command::Command;
use shared::Shared;
use threads::Threads;

/// A running engine. Clones are the same one; when the last is dropped, all requests are ended and its threads with them.
///
/// Several engines may run in one process; nothing is shared between them. Those on one device should be built on clones
/// of one [`tegula::Device`], whose threads they then take turns with.
///
/// ```
/// # use std::sync::Arc;
/// # use tegula_engine::engine::Scripted;
/// # use tegula_engine::tokenizer::small::small;
/// use tegula_engine::engine::{Engine, Request};
/// use tegula_engine::sampling::SamplingParams;
///
/// # let tokenizer = Arc::new(small(&[], &["<end>"]));
/// # let (yes, no) = (Scripted::new(257, 16, 64, 512).answers(&[89]), Scripted::new(257, 16, 64, 512).answers(&[78]));
/// let engines = [
///     Engine::builder("first").index(0).build_on(yes, tokenizer.clone(), None)?,
///     Engine::builder("second").index(1).build_on(no, tokenizer, None)?,
/// ];
/// let ask = |engine: &Engine| engine.generate(Request::new(vec![1, 2, 3], SamplingParams::greedy()));
/// // Both compute at the same time.
/// let generations = [ask(&engines[0])?, ask(&engines[1])?];
/// assert_eq!(generations.map(|generation| generation.wait().answers[0].text.clone()), ["Y", "N"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The last handle, when it is dropped, waits for the step that runs: not in async code, where the thread is others' too.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    name: String,
    info: ModelInfo,
    memory: MemoryPlan,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    /// Made for the first request with a form: many engines never see one.
    grammars: OnceLock<Result<Grammars, GrammarError>>,
    limits: Limits,
    config: SchedulerConfig,
    max_waiting: usize,
    commands: Sender<Command>,
    next_request: AtomicU64,
    shared: Arc<Shared>,
    /// Until the last handle is dropped.
    threads: Mutex<Option<Threads>>,
}

impl Engine {
    /// An engine that will serve a model under this name.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tegula_engine::engine::{Engine, Scripted};
    /// use tegula_engine::tokenizer::small::small;
    ///
    /// let model = Scripted::new(257, 16, 64, 512);
    /// let engine = Engine::builder("demo")
    ///     .max_num_seqs(8)
    ///     .max_num_batched_tokens(128)
    ///     .max_model_len(256)
    ///     .build_on(model, Arc::new(small(&[], &["<end>"])), None)?;
    /// assert_eq!(engine.config().max_model_len, 256);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder(name: impl Into<String>) -> EngineBuilder {
        EngineBuilder::new(name)
    }

    /// An engine with all defaults, on the processor, for a model by name, path or place on the Hugging Face Hub, as
    /// [`crate::pull`] understands it; it is downloaded if it is not here.
    ///
    /// ```no_run
    /// use tegula_engine::engine::{Engine, Request};
    /// use tegula_engine::sampling::SamplingParams;
    /// use tegula_engine::tokenizer::Special;
    ///
    /// let engine = Engine::open("smollm2")?;
    /// let prompt = engine.tokenizer().encode("The capital of France is", Special::Parse);
    /// let generation = engine.generate(Request::new(prompt, SamplingParams::greedy()))?;
    /// let completion = generation.wait();
    /// println!("{}", completion.answers[0].text);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such model, or it cannot run here.
    pub fn open(model: &str) -> Result<Engine, Error> {
        let file = Gguf::open(crate::pull::fetch(model)?)?;
        Engine::builder(model).build(&file, &Device::cpu(), Activations::Q8)
    }

    fn start(
        builder: EngineBuilder,
        model: impl StepModel,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
        memory: MemoryPlan,
    ) -> Result<Engine, Error> {
        let info = model.info();
        let config = builder.scheduler(&info)?;
        let scheduler = Scheduler::new(config.clone()).map_err(|e| Error::Usage(e.to_string()))?;
        let limits = builder.limits(&info, &tokenizer)?;
        let metrics = Metrics::new(&builder.labels(&config));
        let shared = Arc::new(Shared::new(builder.heartbeat, metrics));
        let (commands, received) = channel();
        let (work, works) = channel();
        let faults = fault::FaultLogs::new(builder.fault_log, &info.identity);
        let run = run::Run::new(scheduler, tokenizer.clone(), shared.clone(), work, faults, builder.observers);
        let (results, seen) = (commands.clone(), shared.clone());
        let threads =
            Threads::start(move || run.run(&received), move || device::thread::run(model, works, results, &seen))?;
        Ok(Engine(Arc::new(Inner {
            name: builder.name,
            info,
            memory,
            tokenizer,
            template,
            grammars: OnceLock::new(),
            limits,
            config,
            max_waiting: builder.max_waiting,
            commands,
            next_request: AtomicU64::new(0),
            shared,
            threads: Mutex::new(Some(threads)),
        })))
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the model is.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
    }

    /// What its memory is used for; as text, a table.
    pub fn memory(&self) -> &MemoryPlan {
        &self.0.memory
    }

    /// Its tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.0.tokenizer
    }

    /// Its chat template, if its file has one.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.0.template.as_ref()
    }

    /// Bounds of parameters.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The scheduler's limits.
    pub fn config(&self) -> &SchedulerConfig {
        &self.0.config
    }

    /// Most sequences that may wait.
    pub fn max_waiting(&self) -> usize {
        self.0.max_waiting
    }

    /// How long the device may be silent with work queued before the engine counts as stalled.
    pub fn heartbeat(&self) -> Duration {
        self.0.shared.heartbeat
    }

    /// What it is at: as of its last step.
    pub fn stats(&self) -> EngineStats {
        self.0.shared.stats().clone()
    }

    /// What it has done: for routers and dashboards.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.0.shared.metrics
    }

    /// How it is. Waits for nobody, whatever the engine is at.
    pub fn health(&self) -> Health {
        self.0.shared.health()
    }

    /// Since the device thread's last sign of life.
    pub fn last_step_age(&self) -> Duration {
        self.0.shared.beat.age()
    }

    /// Sequences that were taken and have not started: one for each answer that a request wants.
    pub fn num_waiting(&self) -> usize {
        self.0.shared.num_waiting()
    }

    /// Whether every request that was taken has ended.
    pub fn is_idle(&self) -> bool {
        self.0.shared.is_idle()
    }

    /// Checks that all blocks and queues are accounted for, as the engine does by itself whenever it has nothing to do. Waits
    /// for the engine's thread.
    ///
    /// # Errors
    /// If they are not: a bug. An engine that is gone, or broken, has no books, and no errors in them.
    pub fn check_integrity(&self) -> Result<(), IntegrityError> {
        let (reply, answer) = sync_channel(1);
        let _ = self.0.commands.send(Command::Check(reply));
        answer.recv().unwrap_or(Ok(()))
    }

    /// Forgets cached prefixes; requests that run go on.
    pub fn reset_prefix_cache(&self) {
        let _ = self.0.commands.send(Command::ResetPrefixCache);
    }

    /// Ends all requests, with [`crate::schedule::FinishReason::Abort`].
    pub fn abort_all(&self) {
        let _ = self.0.commands.send(Command::AbortAll);
    }

    /// From now on takes nothing new. What it has goes on, for `grace` at the longest: what is left then is ended, with
    /// [`crate::schedule::FinishReason::Abort`]. What this gives waits for that, and says how many requests it was;
    /// draining goes on if nobody waits.
    pub fn drain(&self, grace: Duration) -> Drain {
        self.0.shared.set_health(Health::Draining);
        let (aborted, waits) = oneshot::channel();
        // A grace beyond what the clock can say is none that ends.
        let deadline = Instant::now().checked_add(grace);
        let _ = self.0.commands.send(Command::Drain { deadline, aborted });
        Drain(waits)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        let _ = self.commands.send(Command::Shutdown);
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = threads.take() {
            threads.join(&self.shared);
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({}, {:?})", self.0.name, self.health())
    }
}
