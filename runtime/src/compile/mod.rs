//! Kernels are compiled by another program, `tegulac`, so that LLVM never enters this process: if it aborts, a worker
//! dies and the caller gets an error.
//!
//! - [`find`]: where the program is, and which compiler it is (for cache keys);
//! - [`worker`]: one running `tegulac` and the conversation with it;
//! - [`Compiler`]: a few of them, started on demand.

pub mod error;
pub mod find;
pub mod worker;

pub use error::CompileError;
pub use find::{Identity, Program};

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tegula_ir::protocol::{Meta, Request, Response};
use worker::{Failure, Worker};

/// What a compilation gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The artifact, or text in UTF-8, as the request asked.
    pub bytes: Vec<u8>,
    /// What goes with it.
    pub meta: Meta,
}

/// News about a compilation, for progress bars.
#[derive(Clone, Debug)]
pub enum Progress {
    /// A worker has taken the kernel.
    Started {
        /// Its name.
        kernel: String,
    },
    /// The kernel is compiled, or has failed.
    Finished {
        /// Its name.
        kernel: String,
        /// How long the compilation took.
        took: Duration,
        /// Whether it succeeded.
        ok: bool,
    },
}

/// Called with news about compilations, from any thread.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// A pool of compiler processes. They start when they are needed and stay for the next request.
pub struct Compiler {
    program: Program,
    timeout: Duration,
    limit: usize,
    state: Mutex<State>,
    freed: Condvar,
    on_progress: Option<OnProgress>,
}

#[derive(Default)]
struct State {
    idle: Vec<Worker>,
    busy: usize,
}

impl Compiler {
    /// A compiler that runs `program`, in at most `limit` processes at a time, for at most `timeout` a kernel.
    pub fn new(program: Program, limit: usize, timeout: Duration) -> Compiler {
        let state = Mutex::default();
        Compiler { program, timeout, limit: limit.max(1), state, freed: Condvar::new(), on_progress: None }
    }

    /// Tells `f` about every compilation.
    pub fn on_progress(mut self, f: OnProgress) -> Compiler {
        self.on_progress = Some(f);
        self
    }

    /// The program that it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// At most so many kernels are compiled at the same time.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Compiles one kernel; `name` is for messages.
    pub fn compile(&self, name: &str, request: &Request) -> Result<Output, CompileError> {
        let mut worker = self.take()?;
        self.tell(|| Progress::Started { kernel: name.into() });
        let begun = Instant::now();
        let answer = worker.request(request, self.timeout);
        // A worker that failed is in an unknown state: it is dropped, which kills it.
        self.give(answer.is_ok().then_some(worker));
        let result = match answer {
            Ok(Response::Ok { bytes, meta }) => Ok(Output { bytes, meta }),
            Ok(Response::Err { stage, message, loc }) => Err(CompileError::Rejected {
                kernel: name.into(),
                target: request.target.as_str().into(),
                stage,
                message,
                loc,
            }),
            Err(failure) => Err(self.crashed(name, request, failure)),
        };
        self.tell(|| Progress::Finished { kernel: name.into(), took: begun.elapsed(), ok: result.is_ok() });
        result
    }

    fn tell(&self, news: impl FnOnce() -> Progress) {
        if let Some(f) = &self.on_progress {
            f(&news());
        }
    }

    fn crashed(&self, name: &str, request: &Request, failure: Failure) -> CompileError {
        CompileError::Crashed {
            kernel: name.into(),
            target: request.target.as_str().into(),
            what: failure.what,
            said: failure.said,
            saved: error::save_ir(name, request),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Worker, CompileError> {
        let mut state = self.lock();
        loop {
            while let Some(mut worker) = state.idle.pop() {
                // One may have died (or been killed) while it had nothing to do.
                if worker.alive() {
                    state.busy += 1;
                    return Ok(worker);
                }
            }
            if state.busy < self.limit {
                break;
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.busy += 1;
        drop(state);
        let started = self.program.path().and_then(Worker::start);
        if started.is_err() {
            self.give(None);
        }
        started
    }

    fn give(&self, worker: Option<Worker>) {
        let mut state = self.lock();
        state.busy -= 1;
        state.idle.extend(worker);
        self.freed.notify_one();
    }
}
