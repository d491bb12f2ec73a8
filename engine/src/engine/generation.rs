//! A request that is being served, from outside.

use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc::UnboundedReceiver;

use super::command::Command;
use super::update::{SampleEnd, Update};
use crate::sampling::TokenLogprobs;

/// The updates of one request, as a stream that ends after the last sample's [`Update::Finished`]. Dropped before, it
/// cancels the request, whose blocks are then free within a step.
///
/// The engine never waits for a reader: what is not read is kept, at most one update for each token that the request may
/// have, and a few more.
///
/// ```
/// # use std::sync::Arc;
/// # use tegula_engine::engine::{Engine, Scripted};
/// # use tegula_engine::tokenizer::small::small;
/// # let model = Scripted::new(257, 16, 64, 512).answers(&[72, 105, 33]);
/// # let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None)?;
/// use std::pin::Pin;
/// use futures_core::Stream;
/// use tegula_engine::engine::{Request, Update};
/// use tegula_engine::sampling::SamplingParams;
///
/// async fn tokens(mut updates: impl Stream<Item = Update> + Unpin) -> Vec<u32> {
///     let mut tokens = vec![];
///     // With the crate `futures`: `while let Some(update) = updates.next().await`.
///     while let Some(update) = std::future::poll_fn(|context| Pin::new(&mut updates).poll_next(context)).await {
///         if let Update::Token(token) = update {
///             tokens.push(token.token);
///         }
///     }
///     tokens
/// }
///
/// let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let generation = engine.generate(Request::new(vec![1, 2, 3], SamplingParams::default()))?;
/// assert_eq!(runtime.block_on(tokens(generation)), [72, 105, 33, 256]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Half of an answer may be enough:
///
/// ```
/// # use std::sync::Arc;
/// # use tegula_engine::engine::{Engine, Request, Scripted};
/// # use tegula_engine::tokenizer::small::small;
/// use tegula_engine::sampling::SamplingParams;
/// # let model = Scripted::new(257, 16, 64, 512);
/// # let engine = Engine::builder("demo").build_on(model, Arc::new(small(&[], &["<end>"])), None)?;
/// let long = SamplingParams { max_tokens: None, ..SamplingParams::default() };
/// let mut updates = engine.generate(Request::new(vec![1, 2, 3], long))?.blocking();
/// assert!(updates.next().is_some());
/// drop(updates); // cancels the request
/// while engine.stats().scheduler.kv.used > 0 {
///     std::thread::yield_now(); // as long as a step takes, at most
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Generation {
    pub(super) request: u64,
    pub(super) id: String,
    pub(super) updates: UnboundedReceiver<Update>,
    pub(super) commands: Sender<Command>,
    /// Samples that have not ended.
    pub(super) left: u32,
}

impl Generation {
    /// The request's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Waits for the next update; `None` after the last.
    pub async fn next(&mut self) -> Option<Update> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Everything, once it is there.
    pub async fn collect(mut self) -> Completion {
        let mut completion = Completion::default();
        while let Some(update) = self.next().await {
            completion.push(update);
        }
        completion
    }

    /// As [`Generation::collect`], for a thread that may wait.
    pub fn wait(self) -> Completion {
        let mut completion = Completion::default();
        self.blocking().for_each(|update| completion.push(update));
        completion
    }

    /// The updates, for a thread that may wait.
    pub fn blocking(mut self) -> impl Iterator<Item = Update> {
        std::iter::from_fn(move || {
            let update = self.updates.blocking_recv();
            self.note(update)
        })
    }

    fn note(&mut self, update: Option<Update>) -> Option<Update> {
        match &update {
            Some(Update::Finished(_)) => self.left = self.left.saturating_sub(1),
            // The engine is gone.
            None => self.left = 0,
            _ => {}
        }
        update
    }
}

impl Stream for Generation {
    type Item = Update;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Update>> {
        let update = std::task::ready!(self.updates.poll_recv(context));
        Poll::Ready(self.note(update))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if self.left > 0 {
            // An engine that is gone has nothing left to cancel.
            let _ = self.commands.send(Command::Abort { request: self.request });
        }
    }
}

/// All that a request brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Completion {
    /// Tokens of the prompt.
    pub num_prompt_tokens: usize,
    /// Of those, tokens that were in the cache.
    pub num_cached_tokens: usize,
    /// One for each token of the prompt, none for the first, if they were asked for.
    pub prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// The answers, in the order of their numbers.
    pub answers: Vec<Answer>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Of its tokens, if they were asked for.
    pub logprobs: Vec<TokenLogprobs>,
    /// Its end; none only if the engine went away.
    pub end: Option<SampleEnd>,
}

impl Completion {
    /// Takes in the next update.
    pub fn push(&mut self, update: Update) {
        match update {
            Update::Started { num_prompt_tokens, num_cached_tokens } => {
                (self.num_prompt_tokens, self.num_cached_tokens) = (num_prompt_tokens, num_cached_tokens);
            }
            Update::PromptLogprobs(logprobs) => self.prompt_logprobs = Some(logprobs),
            Update::Token(token) => {
                let answer = self.answer(token.sample);
                answer.text += &token.text;
                answer.tokens.push(token.token);
                answer.logprobs.extend(token.logprobs);
            }
            Update::Finished(end) => {
                let answer = self.answer(end.sample);
                answer.text += &end.text;
                answer.end = Some(end);
            }
        }
    }

    fn answer(&mut self, sample: u32) -> &mut Answer {
        let sample = sample as usize;
        if self.answers.len() <= sample {
            self.answers.resize_with(sample + 1, Answer::default);
        }
        &mut self.answers[sample]
    }
}
