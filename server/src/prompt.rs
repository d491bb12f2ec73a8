//! Prompts: their tokens, and whether there is room for them.

use tegula_engine::Engine;
use tegula_engine::tokenizer::{Special, Tokenizer};

use crate::error::ApiError;
use crate::fields::Fields;

/// A prompt, ready for the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// At least one token.
    pub tokens: Vec<u32>,
    /// The text that answers begin with, if they are to echo something.
    pub echo: Option<String>,
    /// Whether control tokens have their names in the text: the caller wrote them so. The first does not count if the
    /// server put it there.
    pub control: Control,
}

/// Which control tokens of a prompt are part of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// None.
    #[default]
    Hidden,
    /// All.
    Shown,
    /// All but the first token.
    ShownAfterFirst,
}

impl Prompt {
    /// Of a text in which control tokens are found by their names, with the sequence-begin token in front if the model wants
    /// one and `add_special_tokens` allows it.
    pub fn of_text(tokenizer: &Tokenizer, text: &str, add_special_tokens: bool) -> Prompt {
        let mut tokens = tokenizer.encode(text, Special::Parse);
        let bos = tokenizer.bos().filter(|_| add_special_tokens && tokenizer.add_bos());
        let bos = bos.filter(|bos| tokens.first() != Some(bos));
        tokens.splice(0..0, bos);
        let control = if bos.is_some() { Control::ShownAfterFirst } else { Control::Shown };
        Prompt { tokens, echo: None, control }
    }

    /// The bytes that one of its tokens, by its place, has in the text.
    pub fn text_bytes<'t>(&self, tokenizer: &'t Tokenizer, place: usize) -> &'t [u8] {
        let token = self.tokens[place];
        match self.control {
            Control::ShownAfterFirst if place == 0 => &[],
            Control::Hidden => tokenizer.text_bytes(token),
            _ => tokenizer.token_bytes(token),
        }
    }

    /// Its text.
    pub fn text(&self, tokenizer: &Tokenizer) -> String {
        let bytes = (0..self.tokens.len()).flat_map(|place| self.text_bytes(tokenizer, place));
        String::from_utf8_lossy(&bytes.copied().collect::<Vec<_>>()).into_owned()
    }

    /// Keeps the last tokens only, as many as `truncate` says. Whether that changed anything.
    pub fn truncate(&mut self, truncate: Option<Truncate>, engine: &Engine, max_tokens: Option<usize>) -> bool {
        let most = match truncate {
            None => return false,
            Some(Truncate::To(most)) => most,
            Some(Truncate::ToFit) => engine.config().max_model_len.saturating_sub(max_tokens.unwrap_or(1).max(1)),
        };
        let cut = self.tokens.len().saturating_sub(most);
        self.tokens.drain(..cut);
        if cut > 0 && self.control == Control::ShownAfterFirst {
            self.control = Control::Shown;
        }
        cut > 0
    }
}

/// How many tokens of a prompt to keep, from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truncate {
    /// At most so many.
    To(usize),
    /// As many as the model takes beside the answer.
    ToFit,
}

impl Truncate {
    /// `truncate_prompt_tokens`, where −1 is as many as fit.
    pub fn take(fields: &mut Fields) -> Result<Option<Truncate>, ApiError> {
        const NAME: &str = "truncate_prompt_tokens";
        match fields.take::<i64>(NAME)? {
            None => Ok(None),
            Some(-1) => Ok(Some(Truncate::ToFit)),
            Some(most) if most > 0 => Ok(Some(Truncate::To(usize::try_from(most).unwrap_or(usize::MAX)))),
            Some(other) => {
                let message = format!("{NAME} is {other}; it must be 1 or more, or -1 for as many as fit");
                Err(ApiError::param(NAME, message))
            }
        }
    }
}

/// That a prompt and its answer have room in the model's context. `prompt` and `most` are the names of the parameters that
/// they come from.
///
/// # Errors
/// 400 with both numbers.
pub fn check_room(
    engine: &Engine,
    (prompt, tokens): (&str, usize),
    (most, max_tokens): (&str, Option<usize>),
) -> Result<(), ApiError> {
    let context = engine.config().max_model_len;
    if tokens >= context {
        let message = format!(
            "the maximum context length is {context} tokens; the prompt has {tokens} and leaves no room for an answer"
        );
        return Err(ApiError::param(prompt, message));
    }
    match max_tokens {
        Some(more) if more > context - tokens => {
            let message = format!(
                "the maximum context length is {context} tokens; the prompt has {tokens} and {more} more were asked for \
                 ({most}): reduce either"
            );
            Err(ApiError::param(most, message))
        }
        _ => Ok(()),
    }
}
