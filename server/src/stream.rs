//! Answers on their way: as a stream of events, or whole.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SelectAll, unfold};
use tokio_stream::{Stream, StreamExt};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::pieces::Piece;
use crate::response::{Shape, Usage};
use crate::run::{News, Run};

/// The answer to a request: all its choices, for all its prompts. Dropped, it cancels what is left.
pub struct Answer {
    runs: SelectAll<Run>,
    num_choices: usize,
    shape: Shape,
    usage: Usage,
}

/// What a stream tells besides the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamOptions {
    /// The usage, in an event of its own at the end.
    pub include_usage: bool,
    /// And in all events, as it is so far.
    pub continuous_usage_stats: bool,
}

impl StreamOptions {
    /// From `stream` and `stream_options`; none if the answer is to come whole.
    ///
    /// # Errors
    /// 400 for wrong types, and for options of a stream that is none.
    pub fn take(fields: &mut Fields) -> Result<Option<StreamOptions>, ApiError> {
        const NAME: &str = "stream_options";
        let stream = fields.take::<bool>("stream")?.unwrap_or(false);
        let options = fields.take_object(NAME)?;
        match options {
            None => Ok(stream.then(StreamOptions::default)),
            Some(_) if !stream => Err(ApiError::param(NAME, format!("{NAME} needs `stream` to be true"))),
            Some(mut inner) => {
                let include_usage = inner.take("include_usage")?.unwrap_or(false);
                let continuous = inner.take("continuous_usage_stats")?.unwrap_or(false);
                fields.finished(inner);
                Ok(Some(StreamOptions { include_usage, continuous_usage_stats: include_usage && continuous }))
            }
        }
    }
}

impl Answer {
    /// Of these runs, whose choices are numbered from 0 on.
    pub fn new(runs: Vec<Run>, num_choices: usize, shape: Shape) -> Answer {
        let prompt = runs.iter().map(Run::num_prompt_tokens).sum();
        let usage = Usage { prompt, ..Usage::default() };
        Answer { runs: runs.into_iter().collect(), num_choices, shape, usage }
    }

    async fn next(&mut self) -> Option<Result<Piece, ApiError>> {
        loop {
            match self.runs.next().await? {
                Ok(News::Cached(tokens)) => self.usage.cached += tokens,
                Ok(News::Piece(piece)) => {
                    self.usage.completion += piece.tokens.len();
                    return Some(Ok(piece));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// All of it, once it is there.
    ///
    /// # Errors
    /// If any part of it fails.
    pub async fn whole(mut self) -> Result<Response, ApiError> {
        let mut choices: Vec<Piece> = (0..self.num_choices).map(|index| Piece { index, ..Piece::default() }).collect();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            // Runs number their choices as they were told.
            if let Some(choice) = choices.get_mut(piece.index) {
                choice.append(piece);
            }
        }
        Ok(Json(self.shape.whole(&choices, self.usage)).into_response())
    }

    /// As events, each as soon as it is known. An error is an event too; behind the last comes `[DONE]`. When nothing was
    /// sent for as long as `ping`, a comment is, so that nobody between takes the connection for dead.
    pub fn events(self, options: StreamOptions, ping: Duration) -> Response {
        let keep_alive = KeepAlive::new().interval(ping).text("ping");
        Sse::new(events(self, options)).keep_alive(keep_alive).into_response()
    }
}

fn events(answer: Answer, options: StreamOptions) -> impl Stream<Item = Result<Event, Infallible>> {
    let state = (Some(answer), VecDeque::new());
    unfold(state, move |(mut answer, mut ready): (Option<Answer>, VecDeque<String>)| async move {
        if ready.is_empty() {
            let going = answer.as_mut()?;
            match going.next().await {
                Some(Ok(piece)) => {
                    let told = options.continuous_usage_stats.then_some(going.usage);
                    let usage = options.include_usage.then_some(told);
                    ready.push_back(json(&going.shape.chunk(&piece, usage)));
                }
                Some(Err(error)) => {
                    ready.extend([error.body().to_string(), "[DONE]".into()]);
                    answer = None;
                }
                None => {
                    if options.include_usage {
                        ready.push_back(json(&going.shape.last(going.usage)));
                    }
                    ready.push_back("[DONE]".into());
                    answer = None;
                }
            }
        }
        let event = Event::default().data(ready.pop_front()?);
        Some((Ok(event), (answer, ready)))
    })
}

/// JSON in one line.
fn json(body: &impl serde::Serialize) -> String {
    // All keys are strings, and nothing in a body fails.
    serde_json::to_string(body).unwrap_or_else(|error| ApiError::internal(error.to_string()).body().to_string())
}
