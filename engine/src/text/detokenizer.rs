//! The text of one answer.

use serde::{Deserialize, Serialize};

use super::stop::StopStrings;
use crate::sampling::SamplingParams;
use crate::tokenizer::{Tokenizer, Utf8Stream};

/// What ended an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// One of the model's own end tokens.
    EndOfText,
    /// A token of `stop_token_ids`.
    Token(u32),
    /// A stop string.
    Text(String),
}

/// What a token brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// More text, perhaps none.
    pub text: String,
    /// The answer is at its end, and this is the last of it: nothing more may be pushed, and [`Detokenizer::finish`] has
    /// nothing left.
    pub stopped: Option<StopReason>,
}

/// Makes the text of one answer from its tokens, and finds its end.
///
/// What the text says comes before what is counted: if the last token that an answer may have completes a stop string or ends
/// the text, the answer ended there, and was not cut off.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    utf8: Utf8Stream,
    stops: StopStrings,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    min_tokens: usize,
    include_stop: bool,
    ignore_eos: bool,
    skip_special_tokens: bool,
    /// Control tokens that have text all the same.
    visible: Vec<u32>,
    num_tokens: usize,
    /// Text that stop strings may still claim.
    held: String,
    /// Bytes of the text that was given out.
    given: usize,
    stopped: bool,
}

impl Detokenizer {
    /// An answer without tokens. Of the parameters those count that say what its text is and what ends it: `stop`,
    /// `stop_token_ids`, `min_tokens`, `include_stop_str_in_output`, `ignore_eos`, `skip_special_tokens`.
    pub fn new(params: &SamplingParams) -> Detokenizer {
        Detokenizer {
            utf8: Utf8Stream::new(),
            stops: StopStrings::new(&params.stop),
            stop: params.stop.clone(),
            stop_token_ids: params.stop_token_ids.clone(),
            min_tokens: params.min_tokens,
            include_stop: params.include_stop_str_in_output,
            ignore_eos: params.ignore_eos,
            skip_special_tokens: params.skip_special_tokens,
            visible: vec![],
            num_tokens: 0,
            held: String::new(),
            given: 0,
            stopped: false,
        }
    }

    /// The same with control tokens that have their names as text even if others are skipped: for readers of the text, such
    /// as parsers of tool calls.
    pub fn visible(self, tokens: &[u32]) -> Detokenizer {
        Detokenizer { visible: tokens.to_vec(), ..self }
    }

    /// Takes in the next token. The answer ends with it if it is one that ends answers, or completes a stop string, and is
    /// not before the last of the tokens that an answer must have.
    ///
    /// The text of a token that ends the answer is left out, as stop strings are, unless they are to be included; control
    /// tokens have none if they are to be skipped and not [`visible`](Detokenizer::visible).
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Delta {
        if self.stopped {
            return Delta::default();
        }
        self.num_tokens += 1;
        let counts = self.num_tokens >= self.min_tokens;
        let ends = self.ends(tokenizer, token).filter(|_| counts);
        let bytes = match (&ends, self.skip_special_tokens && !self.visible.contains(&token)) {
            (Some(_), _) if !self.include_stop => &[],
            (_, true) => tokenizer.text_bytes(token),
            (_, false) => tokenizer.token_bytes(token),
        };
        let mut delta = self.push_bytes(bytes, counts);
        if delta.stopped.is_none() && ends.is_some() {
            let rest = self.finish();
            delta = Delta { text: delta.text + &rest.text, stopped: rest.stopped.or(ends) };
            self.stopped = true;
        }
        delta
    }

    /// Ends the answer where no token did: gives out all that was held back, and what is the beginning of a character as
    /// U+FFFD.
    pub fn finish(&mut self) -> Delta {
        if self.stopped {
            return Delta::default();
        }
        let rest = self.utf8.finish();
        let mut delta = self.push_text(&rest, self.num_tokens >= self.min_tokens);
        delta.text += &std::mem::take(&mut self.held);
        self.stopped = true;
        delta
    }

    /// Tokens that came.
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Whether a token ends answers, and why.
    fn ends(&self, tokenizer: &Tokenizer, token: u32) -> Option<StopReason> {
        if self.stop_token_ids.contains(&token) {
            return Some(StopReason::Token(token));
        }
        (!self.ignore_eos && tokenizer.is_end(token)).then_some(StopReason::EndOfText)
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8], counts: bool) -> Delta {
        let text = self.utf8.push(bytes);
        self.push_text(&text, counts)
    }

    /// Takes in whole characters.
    fn push_text(&mut self, text: &str, counts: bool) -> Delta {
        self.held += text;
        let found = self.stops.push(text, counts);
        // Bytes of what is held that are text for good. They end between characters: a stop string begins with one.
        let free = match found {
            Some(found) => (if self.include_stop { found.end } else { found.start }) - self.given,
            None => self.held.len() - self.stops.held(),
        };
        let after = self.held.split_off(free);
        self.given += free;
        let text = std::mem::replace(&mut self.held, after);
        let stopped = found.map(|found| StopReason::Text(self.stop[found.stop].clone()));
        if stopped.is_some() {
            self.held.clear();
            self.stopped = true;
        }
        Delta { text, stopped }
    }
}
