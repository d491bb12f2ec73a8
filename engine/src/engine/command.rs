//! What the engine thread is told.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::device::{SequenceSpec, StepFault, StepResult};
use super::shared::Place;
use super::update::Update;
use crate::kv::IntegrityError;
use crate::metrics::Asked;
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
    /// Says when all requests have ended, and ends those that have not by then. Nothing new is taken meanwhile.
    Drain { deadline: Option<Instant>, aborted: oneshot::Sender<usize> },
    /// Checks the books, and says what is wrong with them.
    Check(SyncSender<Result<(), IntegrityError>>),
    /// A step was run.
    Done { step: u64, result: Result<StepResult, StepFault> },
    /// The device thread has ended.
    DeviceGone,
    /// Ends all requests, and the thread.
    Shutdown,
}

/// A request as the engine thread takes it.
#[derive(Debug)]
pub struct Submission {
    pub new: NewRequest,
    /// One for each sample.
    pub specs: Vec<Arc<SequenceSpec>>,
    pub asked: Asked,
    /// Control tokens that have a text.
    pub visible: Vec<u32>,
    pub place: Place,
    pub updates: UnboundedSender<Update>,
    pub arrival: Instant,
    pub queued: Instant,
}
