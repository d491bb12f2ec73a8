//! What is asked of an engine.

use std::time::Instant;

use crate::grammar::{Form, GrammarError};
use crate::sampling::{ParamError, SamplingParams};
use crate::schedule::AdmissionError;

/// A prompt to continue.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one token.
    pub prompt: Vec<u32>,
    /// How it is to be continued.
    pub params: SamplingParams,
    /// The form of each answer.
    pub form: Option<Form>,
    /// Lower is served first; among equals, who came first.
    pub priority: i32,
    /// Requests share cached blocks only with those of the same salt.
    pub cache_salt: Option<String>,
    /// Control tokens that have a text in answers all the same, whatever `skip_special_tokens` says: tags of tool calls.
    pub visible: Vec<u32>,
    /// Its name in logs and answers; one is made if there is none.
    pub id: Option<String>,
    /// When it came: times are counted from here.
    pub arrival: Instant,
    /// The W3C trace context that it is a part of, as in the header `traceparent`.
    pub traceparent: Option<String>,
}

impl Request {
    /// Without a form, of ordinary priority, arriving now.
    pub fn new(prompt: Vec<u32>, params: SamplingParams) -> Request {
        Request {
            prompt,
            params,
            form: None,
            priority: 0,
            cache_salt: None,
            visible: vec![],
            id: None,
            arrival: Instant::now(),
            traceparent: None,
        }
    }
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A parameter is out of bounds.
    #[error(transparent)]
    Param(#[from] ParamError),
    /// It can never be served.
    #[error(transparent)]
    Admission(#[from] AdmissionError),
    /// Its form cannot be followed.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// A token of the prompt is none of the model's.
    #[error("token {token} at place {place} of the prompt; the vocabulary has tokens 0 to {last}")]
    Token {
        /// What was given.
        token: u32,
        /// Where, from 0.
        place: usize,
        /// The largest that is one.
        last: usize,
    },
    /// Too many wait already.
    #[error("{waiting} sequences are waiting; {most} may: try again later")]
    QueueFull {
        /// As many wait.
        waiting: usize,
        /// As many may.
        most: usize,
    },
    /// The engine finishes what it has, and takes nothing new.
    #[error("the engine is shutting down")]
    Draining,
    /// The engine cannot go on.
    #[error("the engine has failed: {0}")]
    Failed(String),
}
