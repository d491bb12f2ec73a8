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
mod device;
mod generation;
mod health;
mod live;
mod request;
mod run;
mod update;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::unbounded_channel;

pub use builder::EngineBuilder;
pub use device::{
    Hook, ModelInfo, Sampled, Scripted, SequenceSpec, Start, Step, StepFault, StepModel, StepResult, Work,
};
pub use generation::{Answer, Completion, Generation};
pub use health::{Health, Heartbeat};
pub use request::{Request, SubmitError};
pub use update::{SampleEnd, Times, TokenUpdate, Update};

use crate::Error;
use crate::chat::ChatTemplate;
use crate::grammar::Grammars;
use crate::kv::CacheKey;
use crate::sampling::Limits;
use crate::schedule::{AdmissionError, NewRequest, Scheduler, SchedulerConfig, SchedulerStats};
use crate::tokenizer::Tokenizer;
use command::{Command, Submission};

/// A running engine. Clones are the same one; when the last is dropped, all requests are ended and its threads with them.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    name: String,
    info: ModelInfo,
    tokenizer: Arc<Tokenizer>,
    template: Option<ChatTemplate>,
    grammars: Option<Grammars>,
    limits: Limits,
    config: SchedulerConfig,
    max_waiting: usize,
    commands: Sender<Command>,
    next_request: AtomicU64,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the threads tell everybody.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) stats: Mutex<EngineStats>,
    pub(crate) health: Mutex<Health>,
    /// Requests submitted that have not started.
    pub(crate) waiting: AtomicUsize,
    pub(crate) beat: Arc<Heartbeat>,
    pub(crate) heartbeat: Duration,
}

/// What an engine is at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    /// The scheduler's queues and blocks.
    pub scheduler: SchedulerStats,
    /// Steps run so far.
    pub num_steps: u64,
    /// Of those, steps that failed.
    pub num_failed_steps: u64,
    /// Whether blocks and queues were whole when the engine last became idle: an error's text if not.
    pub integrity: Option<String>,
}

impl Engine {
    /// An engine that will serve a model under this name.
    pub fn builder(name: impl Into<String>) -> EngineBuilder {
        EngineBuilder::new(name)
    }

    fn start(
        builder: EngineBuilder,
        model: impl StepModel,
        tokenizer: Arc<Tokenizer>,
        template: Option<ChatTemplate>,
    ) -> Result<Engine, Error> {
        let info = model.info();
        let config = builder.scheduler(&info);
        let scheduler = Scheduler::new(config.clone()).map_err(|e| Error::Usage(e.to_string()))?;
        let mut limits = Limits::new(info.vocab_size.min(tokenizer.vocab_size()));
        limits.max_logprobs = builder.max_logprobs;
        let shared = Arc::new(Shared {
            stats: Mutex::default(),
            health: Mutex::new(Health::Ready),
            waiting: AtomicUsize::new(0),
            beat: Arc::new(Heartbeat::new()),
            heartbeat: builder.heartbeat,
        });
        let (commands, received) = channel();
        let (work, works) = channel();
        let (results, beat) = (commands.clone(), shared.beat.clone());
        let spawn = |name: &str, f: Box<dyn FnOnce() + Send>| {
            let io = |source| Error::Io { doing: "starting a thread", source };
            std::thread::Builder::new().name(name.to_owned()).spawn(f).map_err(io)
        };
        let device = spawn("tegula-device", Box::new(move || device::thread::run(model, works, results, beat)))?;
        let run = run::Run::new(scheduler, tokenizer.clone(), shared.clone(), work, builder.fault_log);
        let engine = spawn("tegula-engine", Box::new(move || run.run(&received)))?;
        Ok(Engine(Arc::new(Inner {
            name: builder.name,
            info,
            grammars: Grammars::new(tokenizer.clone()).ok(),
            tokenizer,
            template,
            limits,
            config,
            max_waiting: builder.max_waiting,
            commands,
            next_request: AtomicU64::new(0),
            shared,
            threads: Mutex::new(vec![engine, device]),
        })))
    }

    /// Takes a request. Checks its parameters and compiles its form, which may take milliseconds: not for a thread that
    /// must not wait.
    ///
    /// # Errors
    /// If it cannot be served; nothing was changed.
    pub fn generate(&self, request: Request) -> Result<Generation, SubmitError> {
        let inner = &*self.0;
        match self.health() {
            Health::Ready | Health::Stalled { .. } => {}
            Health::Draining => return Err(SubmitError::Draining),
            Health::Failed(why) => return Err(SubmitError::Failed(why)),
        }
        request.params.check(&inner.limits)?;
        let last = inner.limits.vocab_size - 1;
        if let Some(place) = request.prompt.iter().position(|token| *token as usize > last) {
            return Err(SubmitError::Token { token: request.prompt[place], place, last });
        }
        let form = match (&request.form, &inner.grammars) {
            (None, _) => None,
            (Some(form), Some(grammars)) => Some(grammars.compile(form)?),
            (Some(_), None) => {
                let why = "a vocabulary with a token that ends answers".into();
                return Err(crate::grammar::GrammarError::Vocabulary(why).into());
            }
        };
        let number = inner.next_request.fetch_add(1, Ordering::Relaxed);
        let params = Arc::new(request.params);
        let ends = params.ending_tokens(inner.tokenizer.ends());
        let key = CacheKey { cache_salt: request.cache_salt, ..CacheKey::model(&inner.info.identity) };
        let new = NewRequest {
            n: params.n,
            priority: request.priority,
            max_tokens: params.max_tokens,
            min_tokens: params.min_tokens,
            stop_token_ids: ends.clone(),
            skip_reading_prefix_cache: params.prompt_logprobs.is_some(),
            ..NewRequest::new(number, request.prompt, key)
        };
        new.admissible(&inner.config)?;
        let waiting = inner.shared.waiting.load(Ordering::Relaxed);
        if waiting >= inner.max_waiting {
            return Err(SubmitError::QueueFull { waiting, most: inner.max_waiting });
        }
        inner.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let (prompt, ends): (Arc<[u32]>, Arc<[u32]>) = (new.prompt.as_slice().into(), ends.into());
        let spec = |draw| {
            let (prompt, ends, params) = (prompt.clone(), ends.clone(), params.clone());
            Arc::new(SequenceSpec { prompt, params, draw, ends, form: form.clone() })
        };
        let id = request.id.unwrap_or_else(|| format!("req-{number}"));
        let (updates, receiver) = unbounded_channel();
        let submission = Submission {
            specs: params.draws().into_iter().map(spec).collect(),
            new,
            id: id.clone(),
            visible: request.visible,
            updates,
            arrival: request.arrival,
            queued: Instant::now(),
            traceparent: request.traceparent,
        };
        let commands = inner.commands.clone();
        let gone = |_| SubmitError::Failed("its thread has ended".into());
        commands.send(Command::Submit(Box::new(submission))).map_err(gone)?;
        Ok(Generation { request: number, id, updates: receiver, commands, left: params.n })
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// What the model is.
    pub fn info(&self) -> &ModelInfo {
        &self.0.info
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

    /// What it is at: as of its last step.
    pub fn stats(&self) -> EngineStats {
        self.0.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How it is.
    pub fn health(&self) -> Health {
        self.0.shared.health()
    }

    /// Since the device thread's last sign of life.
    pub fn last_step_age(&self) -> Duration {
        self.0.shared.beat.age()
    }

    /// Forgets cached prefixes; requests that run go on.
    pub fn reset_prefix_cache(&self) {
        let _ = self.0.commands.send(Command::ResetPrefixCache);
    }

    /// Ends all requests, with [`crate::schedule::FinishReason::Abort`].
    pub fn abort_all(&self) {
        let _ = self.0.commands.send(Command::AbortAll);
    }

    /// From now on takes nothing new; what it has goes on.
    pub fn drain(&self) {
        self.0.shared.set_health(Health::Draining);
    }

    /// Whether it has nothing to do.
    pub fn is_idle(&self) -> bool {
        let stats = self.stats().scheduler;
        self.0.shared.waiting.load(Ordering::Relaxed) == 0 && stats.num_running + stats.num_waiting == 0
    }
}

impl Shared {
    fn health(&self) -> Health {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let working = self.stats.lock().unwrap_or_else(PoisonError::into_inner).scheduler.num_in_flight > 0;
        let age = self.beat.age();
        match health {
            Health::Ready if working && age > self.heartbeat => Health::Stalled { age },
            other => other,
        }
    }

    fn set_health(&self, health: Health) {
        let mut now = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*now, Health::Failed(_)) {
            *now = health;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Shutdown);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic was told to whoever waited.
            let _ = thread.join();
        }
    }
}

impl From<AdmissionError> for Error {
    fn from(error: AdmissionError) -> Error {
        Error::Usage(error.to_string())
    }
}
