//! What the engine thread is told.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

use super::device::{SequenceSpec, StepFault, StepResult};
use super::update::Update;
use crate::schedule::NewRequest;

/// News for the engine thread: from callers, and from the device thread.
#[derive(Debug)]
pub enum Command {
    /// A checked request.
    Submit(Box<Submission>),
    /// Nobody wants a request any more.
    Abort { request: u64 },
    /// Ends all requests.
    AbortAll,
    /// Forgets cached prefixes.
    ResetPrefixCache,
    /// A step was run.
    Done { step: u64, result: Result<StepResult, StepFault> },
    /// Ends all requests, and the thread.
    Shutdown,
}

/// A request as the engine thread takes it.
#[derive(Debug)]
pub struct Submission {
    pub new: NewRequest,
    /// One for each sample.
    pub specs: Vec<Arc<SequenceSpec>>,
    pub id: String,
    pub visible: Vec<u32>,
    pub updates: UnboundedSender<Update>,
    pub arrival: Instant,
    pub queued: Instant,
    pub traceparent: Option<String>,
}
