//! Answers in pieces: what each update of the engine adds to which choice.
//!
//! ```text
//!  Generation ─ Update ─▶ Run ─ Piece ─▶ one event each (stream)
//!                                    └─▶ appended to each other (whole)
//! ```
//!
//! An answer as a whole is its pieces put together, so it says what a stream says.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use serde_json::Value;
use tegula_engine::engine::{Generation, SampleEnd, TokenUpdate, Update};
use tegula_engine::sampling::TokenLogprobs;
use tegula_engine::schedule::FinishReason;
use tegula_engine::text::StopReason;
use tegula_engine::tokenizer::{Tokenizer, Utf8Stream};
use tokio_stream::Stream;

use crate::error::ApiError;
use crate::prompt::Prompt;
use crate::tools::{ToolChoice, ToolDelta, ToolParser, Tools};

/// More of one choice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Piece {
    /// Which choice.
    pub index: usize,
    /// It is the first of its choice.
    pub begins: bool,
    /// More text.
    pub text: String,
    /// More of its calls.
    pub calls: Vec<CallPiece>,
    /// More tokens.
    pub tokens: Vec<u32>,
    /// Log-probabilities of those, if they are wanted, and before them of the prompt's, if that is echoed.
    pub logprobs: Vec<Spot>,
    /// What the prompt was, with the first piece.
    pub prompt: Option<Arc<PromptNews>>,
    /// Its end, with the last.
    pub end: Option<End>,
}

/// More of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallPiece {
    /// Which of the choice's calls.
    pub index: usize,
    /// Its id and the function's name, where it begins.
    pub begins: Option<(String, String)>,
    /// More of its arguments.
    pub arguments: String,
}

/// A token in a text, with its log-probability.
#[derive(Clone, Debug, PartialEq)]
pub struct Spot {
    /// The token.
    pub token: u32,
    /// Characters of the text before it.
    pub offset: usize,
    /// None for the first token of a prompt.
    pub logprobs: Option<TokenLogprobs>,
}

/// What was made of the prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptNews {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Their log-probabilities, if they are wanted.
    pub logprobs: Option<Vec<Option<TokenLogprobs>>>,
}

/// The end of a choice.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// `stop`, `length` or `tool_calls`.
    pub reason: &'static str,
    /// The stop string or token that ended it, or null.
    pub stop: Value,
}

impl Piece {
    /// Puts the next piece of the same choice behind this one.
    pub fn append(&mut self, next: Piece) {
        self.begins |= next.begins;
        self.text += &next.text;
        for call in next.calls {
            push_call(&mut self.calls, call);
        }
        self.tokens.extend(next.tokens);
        self.logprobs.extend(next.logprobs);
        self.prompt = self.prompt.take().or(next.prompt);
        self.end = self.end.take().or(next.end);
    }

    fn extend(&mut self, deltas: Vec<ToolDelta>) {
        for delta in deltas {
            match delta {
                ToolDelta::Content(text) => self.text += &text,
                ToolDelta::Call { index, id, name } => {
                    push_call(&mut self.calls, CallPiece { index, begins: Some((id, name)), ..CallPiece::default() });
                }
                ToolDelta::Arguments { index, text } => {
                    push_call(&mut self.calls, CallPiece { index, arguments: text, begins: None });
                }
            }
        }
    }
}

fn push_call(calls: &mut Vec<CallPiece>, next: CallPiece) {
    match calls.last_mut().filter(|last| last.index == next.index) {
        Some(last) => last.arguments += &next.arguments,
        None => calls.push(next),
    }
}

/// What a stream of pieces tells.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// So many of the prompt's tokens were in the cache.
    Cached(usize),
    /// More of an answer.
    Piece(Piece),
}

/// How pieces are made, the same for all prompts of a request.
#[derive(Clone, Debug)]
pub struct Style {
    /// The model's.
    pub tokenizer: Arc<Tokenizer>,
    /// Answers to each prompt.
    pub n: usize,
    /// The first piece of a choice stands alone.
    pub begins_alone: bool,
    /// Log-probabilities of the answer's tokens are wanted.
    pub logprobs: bool,
    /// Log-probabilities of the prompt's tokens stand before them.
    pub echo_logprobs: bool,
    /// The prompt's log-probabilities are wanted by themselves.
    pub prompt_logprobs: bool,
    /// The prompt's tokens are wanted.
    pub prompt_tokens: bool,
    /// The answer's tokens are left out.
    pub prompt_only: bool,
    /// Control tokens have no text.
    pub skip_special_tokens: bool,
    /// Which calls to look for.
    pub tools: Option<Tools>,
}

/// The pieces of the answers to one prompt: a stream that ends with the last answer, or after an error. Dropped before, it
/// cancels what is left.
pub struct Run {
    style: Arc<Style>,
    source: Source,
    prompt: Prompt,
    /// Index of the first choice.
    first: usize,
    choices: Vec<Choice>,
    prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    /// Made once, for the first piece of each choice.
    prompt_news: Option<Arc<PromptNews>>,
    news: VecDeque<News>,
}

/// Where the updates come from.
enum Source {
    /// The engine.
    Live(Generation),
    /// The prompt is all that is wanted.
    PromptOnly,
    /// Nothing comes any more.
    Over,
}

struct Choice {
    begun: bool,
    /// The piece of the last token, which waits for its end.
    last: Option<Piece>,
    ended: bool,
    /// The text so far, of which only the number of characters counts.
    characters: Characters,
    parser: Option<ToolParser>,
}

/// Counts characters that are complete.
#[derive(Default)]
struct Characters {
    utf8: Utf8Stream,
    count: usize,
}

impl Characters {
    fn push(&mut self, bytes: &[u8]) {
        self.count += self.utf8.push(bytes).chars().count();
    }
}

impl Run {
    /// Of what the engine generates for a prompt; without a generation, of the prompt alone. The choices are numbered from
    /// `first`.
    pub fn new(style: Arc<Style>, prompt: Prompt, generation: Option<Generation>, first: usize) -> Run {
        let choice = || Choice {
            begun: false,
            last: None,
            ended: false,
            characters: Characters::default(),
            parser: style.tools.as_ref().and_then(Tools::parser),
        };
        let choices = std::iter::repeat_with(choice).take(style.n).collect();
        let source = generation.map_or(Source::PromptOnly, Source::Live);
        let (prompt_logprobs, prompt_news, news) = (None, None, VecDeque::new());
        Run { style, source, prompt, first, choices, prompt_logprobs, prompt_news, news }
    }

    /// Tokens of the prompt.
    pub fn num_prompt_tokens(&self) -> usize {
        self.prompt.tokens.len()
    }

    fn take(&mut self, update: Update) -> Result<(), ApiError> {
        match update {
            Update::Started { num_cached_tokens, .. } => self.news.push_back(News::Cached(num_cached_tokens)),
            Update::PromptLogprobs(all) => self.prompt_logprobs = Some(all),
            Update::Token(token) => self.token(token),
            Update::Finished(end) => return self.finished(end),
        }
        Ok(())
    }

    fn token(&mut self, update: TokenUpdate) {
        let sample = update.sample as usize;
        if self.style.prompt_only {
            return;
        }
        let begin = self.begin(sample);
        let Some(choice) = self.choices.get_mut(sample).filter(|choice| !choice.ended) else { return };
        let mut piece = Piece { index: self.first + sample, tokens: vec![update.token], ..Piece::default() };
        if self.style.logprobs {
            let offset = choice.characters.count;
            piece.logprobs.push(Spot { token: update.token, offset, logprobs: update.logprobs });
            choice.characters.push(match self.style.skip_special_tokens {
                true => self.style.tokenizer.text_bytes(update.token),
                false => self.style.tokenizer.token_bytes(update.token),
            });
        }
        match &mut choice.parser {
            Some(parser) => piece.extend(parser.push(&update.text)),
            None => piece.text = update.text,
        }
        // What is forced to call ends by itself.
        let free = self.style.tools.as_ref().is_some_and(|tools| *tools.choice() == ToolChoice::Auto);
        let called_enough = free && choice.parser.as_ref().is_some_and(ToolParser::is_done);
        let ends_here = called_enough && self.style.n == 1;
        let piece = self.behind(begin, piece);
        match self.choices.get_mut(sample) {
            Some(choice) if update.last || ends_here => choice.last = Some(piece),
            _ => self.news.push_back(News::Piece(piece)),
        }
        if ends_here {
            // Nothing that may still come counts.
            self.end(sample, String::new(), FinishReason::Stop, Value::Null);
            self.source = Source::Over;
        }
    }

    fn finished(&mut self, end: SampleEnd) -> Result<(), ApiError> {
        let reason = match end.reason {
            FinishReason::Error => {
                let why = end.error.unwrap_or_else(|| "a step failed".into());
                return Err(ApiError::internal(format!("the answer broke off: {why}")));
            }
            FinishReason::Abort => {
                return Err(ApiError::unavailable("the request was ended: the server is shutting down"));
            }
            // The one token was not asked for.
            _ if self.style.prompt_only => FinishReason::Length,
            reason => reason,
        };
        let stop = match end.stop.filter(|_| reason == FinishReason::Stop) {
            Some(StopReason::Text(text)) => text.into(),
            Some(StopReason::Token(token)) => token.into(),
            Some(StopReason::EndOfText) | None => Value::Null,
        };
        let text = if self.style.prompt_only { String::new() } else { end.text };
        self.end(end.sample as usize, text, reason, stop);
        Ok(())
    }

    /// Ends a choice, with the rest of its text.
    fn end(&mut self, sample: usize, rest: String, reason: FinishReason, stop: Value) {
        let begin = self.begin(sample);
        let Some(choice) = self.choices.get_mut(sample).filter(|choice| !choice.ended) else { return };
        choice.ended = true;
        let mut piece = choice.last.take().unwrap_or_else(|| Piece { index: self.first + sample, ..Piece::default() });
        let mut calls = false;
        match &mut choice.parser {
            Some(parser) => {
                let deltas = parser.push(&rest);
                piece.extend(deltas);
                piece.extend(parser.finish());
                calls = parser.num_calls() > 0;
            }
            None => piece.text += &rest,
        }
        let reason = if calls && reason == FinishReason::Stop { "tool_calls" } else { reason.as_str() };
        piece.end = Some(End { reason, stop });
        let piece = self.behind(begin, piece);
        self.news.push_back(News::Piece(piece));
    }

    /// The first piece of a choice, if it has not been.
    fn begin(&mut self, sample: usize) -> Option<Piece> {
        let choice = self.choices.get_mut(sample)?;
        if std::mem::replace(&mut choice.begun, true) {
            return None;
        }
        let style = &self.style;
        let mut piece = Piece { index: self.first + sample, begins: true, ..Piece::default() };
        piece.text = self.prompt.echo.clone().unwrap_or_default();
        if style.echo_logprobs {
            let known = self.prompt_logprobs.as_deref().unwrap_or_default();
            for (place, &token) in self.prompt.tokens.iter().enumerate() {
                let logprobs = known.get(place).cloned().flatten();
                piece.logprobs.push(Spot { token, offset: choice.characters.count, logprobs });
                choice.characters.push(self.prompt.text_bytes(&style.tokenizer, place));
            }
        }
        if style.prompt_tokens || style.prompt_logprobs {
            let news = || {
                let tokens = self.prompt.tokens.clone();
                let logprobs = self.prompt_logprobs.clone().filter(|_| style.prompt_logprobs);
                Arc::new(PromptNews { tokens, logprobs })
            };
            piece.prompt = Some(self.prompt_news.get_or_insert_with(news).clone());
        }
        Some(piece)
    }

    /// A piece behind the first of its choice: alone, or as one.
    fn behind(&mut self, begin: Option<Piece>, piece: Piece) -> Piece {
        match begin {
            Some(mut begin) if !self.style.begins_alone => {
                begin.append(piece);
                begin
            }
            begin => {
                self.news.extend(begin.map(News::Piece));
                piece
            }
        }
    }
}

impl Stream for Run {
    type Item = Result<News, ApiError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Poll::Ready(Some(Ok(news)));
            }
            let update = match &mut self.source {
                Source::Over => return Poll::Ready(None),
                Source::PromptOnly => {
                    self.source = Source::Over;
                    for sample in 0..self.choices.len() {
                        self.end(sample, String::new(), FinishReason::Length, Value::Null);
                    }
                    continue;
                }
                Source::Live(generation) => ready!(Pin::new(generation).poll_next(context)),
            };
            let taken = match update {
                Some(update) => self.take(update),
                None => {
                    self.source = Source::Over;
                    if self.choices.iter().all(|choice| choice.ended) {
                        continue;
                    }
                    Err(ApiError::internal("the answer broke off: the engine has ended"))
                }
            };
            if let Err(error) = taken {
                self.source = Source::Over;
                self.news.clear();
                return Poll::Ready(Some(Err(error)));
            }
        }
    }
}
