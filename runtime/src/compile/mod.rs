//! Kernels are compiled by another program, `tegulac`, so that LLVM never enters this process: if it aborts, a worker
//! dies and the caller gets an error.
//!
//! - [`find`]: where the program is, and which compiler it is (for cache keys);
//! - [`worker`]: one running `tegulac` and the conversation with it;
//! - `workers`: a few of them, started on demand and ended when they have long had nothing to do;
//! - [`Compiler`]: gives kernels to them.

pub mod error;
pub mod find;
mod saved;
pub mod worker;
mod workers;

pub use error::CompileError;
pub use find::{Identity, Program};

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tegula_ir::protocol::{Meta, Request, Response};
use worker::Failure;
use workers::Workers;

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

/// How long a compiler process may have nothing to do before it is ended, unless told otherwise.
const IDLE: Duration = Duration::from_secs(10);

/// A pool of compiler processes. They start when they are needed and stay for the next request; one that has had none for
/// ten seconds is ended, and all are when the compiler is dropped.
pub struct Compiler {
    program: Program,
    timeout: Duration,
    workers: Workers,
    on_progress: Option<OnProgress>,
}

impl Compiler {
    /// A compiler that runs `program`, in at most `limit` processes at a time, for at most `timeout` a kernel.
    pub fn new(program: Program, limit: usize, timeout: Duration) -> Compiler {
        Compiler { program, timeout, workers: Workers::new(limit.max(1), IDLE), on_progress: None }
    }

    /// Ends a process that has had no request for so long.
    pub fn idle(mut self, idle: Duration) -> Compiler {
        self.workers = Workers::new(self.workers.limit(), idle);
        self
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
        self.workers.limit()
    }

    /// Compiles one kernel; `name` is for messages.
    pub fn compile(&self, name: &str, request: &Request) -> Result<Output, CompileError> {
        // Nothing has started where there is no compiler; nor is a worker in hand while others' code is told.
        self.program.path()?;
        self.tell(|| Progress::Started { kernel: name.into() });
        let begun = Instant::now();
        let finished = |ok| self.tell(|| Progress::Finished { kernel: name.into(), took: begun.elapsed(), ok });
        let mut worker = self.workers.take(&self.program).inspect_err(|_| finished(false))?;
        let answer = worker.request(request, self.timeout);
        // A worker that failed is in an unknown state: it is dropped, which kills it.
        self.workers.give(answer.is_ok().then_some(worker));
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
        finished(result.is_ok());
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
            saved: saved::save(name, request),
        }
    }
}
