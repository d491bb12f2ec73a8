//! From the engine's updates to pieces of answers.
//!
//! ```text
//!  Generation ─ Update ─▶ Run ─ Piece ─▶ one event each (stream)
//!                                    └─▶ appended to each other (whole)
//! ```

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
use crate::pieces::{End, Piece, PromptNews, Spot};
use crate::prompt::Prompt;
use crate::tools::{ToolChoice, ToolParser, Tools};

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
        let mut piece = self.piece(sample);
        let Some(choice) = self.choices.get_mut(sample).filter(|choice| !choice.ended) else { return };
        piece.tokens.push(update.token);
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
        // An answer that may call once is at its end behind its call; what is forced to call ends there by itself.
        let free = self.style.tools.as_ref().is_some_and(|tools| *tools.choice() == ToolChoice::Auto);
        let ends_here = free && self.style.n == 1 && choice.parser.as_ref().is_some_and(ToolParser::is_done);
        let piece = self.behind(begin, piece);
        if !update.last && !ends_here {
            return self.news.push_back(News::Piece(piece));
        }
        // It waits for the end, which follows at once.
        if let Some(choice) = self.choices.get_mut(sample) {
            choice.last = Some(piece);
        }
        if ends_here {
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
        let empty = self.piece(sample);
        let Some(choice) = self.choices.get_mut(sample).filter(|choice| !choice.ended) else { return };
        choice.ended = true;
        let mut piece = choice.last.take().unwrap_or(empty);
        let mut calls = false;
        match &mut choice.parser {
            Some(parser) => {
                piece.extend(parser.push(&rest));
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

    /// A piece of a choice, with nothing in it.
    fn piece(&self, sample: usize) -> Piece {
        Piece { index: self.first + sample, ..Piece::default() }
    }

    /// The first piece of a choice, if it has not been.
    fn begin(&mut self, sample: usize) -> Option<Piece> {
        let mut piece = Piece { begins: true, ..self.piece(sample) };
        let choice = self.choices.get_mut(sample)?;
        if std::mem::replace(&mut choice.begun, true) {
            return None;
        }
        let style = &self.style;
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
