//! Answers in pieces. An answer as a whole is its pieces put together, so it says what a stream says.

use std::sync::Arc;

use serde_json::Value;
use tegula_engine::sampling::TokenLogprobs;

use crate::tools::ToolDelta;

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

    /// Adds what was found in more of the text.
    pub fn extend(&mut self, deltas: Vec<ToolDelta>) {
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
