//! What parameters may be.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde_json::Value;

use super::params::SamplingParams;

/// A parameter that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {value}; it must be {expected}")]
pub struct ParamError {
    /// Its name, as callers write it.
    pub field: &'static str,
    /// What it is.
    pub value: String,
    /// What would be right.
    pub expected: String,
}

impl ParamError {
    /// That `field` is `value`, and not `expected`.
    pub fn new(field: &'static str, value: impl Debug, expected: impl Into<String>) -> ParamError {
        ParamError { field, value: format!("{value:?}"), expected: expected.into() }
    }
}

/// What a server and its model set the bounds of parameters by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tokens are below.
    pub vocab_size: usize,
    /// Most alternatives that log-probabilities are given of.
    pub max_logprobs: u32,
    /// Most answers to one prompt.
    pub max_n: u32,
    /// Most texts that end an answer.
    pub max_stop: usize,
    /// Most bytes of one of them.
    pub max_stop_bytes: usize,
    /// Most tokens that end an answer.
    pub max_stop_token_ids: usize,
    /// Most tokens with a bias.
    pub max_logit_bias: usize,
    /// Most sequences of tokens that an answer must not contain.
    pub max_bad_words: usize,
    /// Most tokens of one of them.
    pub max_bad_word_tokens: usize,
}

impl Limits {
    /// The usual ones of a vocabulary.
    pub fn new(vocab_size: usize) -> Limits {
        Limits {
            vocab_size,
            max_logprobs: 20,
            max_n: 128,
            max_stop: 64,
            max_stop_bytes: 1024,
            max_stop_token_ids: 1024,
            max_logit_bias: 1024,
            max_bad_words: 1024,
            max_bad_word_tokens: 64,
        }
    }
}

/// Largest bias, either way.
const MOST_BIAS: f32 = 100.0;

impl SamplingParams {
    /// Checks the bounds, those of the vocabulary among them.
    ///
    /// # Errors
    /// For the first parameter that is out of bounds: its name, its value, and what would be right.
    pub fn check(&self, limits: &Limits) -> Result<(), ParamError> {
        self.validate()?;
        let up_to = |field, found: u32, most: u32| within(field, found, found <= most, || format!("at most {most}"));
        up_to("n", self.n, limits.max_n)?;
        for (field, asked) in [("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)] {
            asked.map_or(Ok(()), |found| up_to(field, found, limits.max_logprobs))?;
        }
        // What everybody else waits for, with each token of this answer, has bounds.
        let most = |field, found: usize, most: usize, of: &str| {
            within(field, format_args!("of {found} {of}"), found <= most, || format!("of at most {most}"))
        };
        let longest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        most("stop", self.stop.len(), limits.max_stop, "texts")?;
        let bytes = longest(&mut self.stop.iter().map(String::len));
        most("stop", bytes, limits.max_stop_bytes, "bytes in one text")?;
        most("stop_token_ids", self.stop_token_ids.len(), limits.max_stop_token_ids, "tokens")?;
        most("logit_bias", self.logit_bias.len(), limits.max_logit_bias, "tokens")?;
        most("bad_words", self.bad_words.len(), limits.max_bad_words, "sequences")?;
        let tokens = longest(&mut self.bad_words.iter().map(Vec::len));
        most("bad_words", tokens, limits.max_bad_word_tokens, "tokens in one sequence")?;
        let tokens = [
            ("logit_bias", self.logit_bias.keys().copied().collect()),
            ("bad_words", self.bad_words.concat()),
            ("allowed_token_ids", self.allowed_token_ids.clone().unwrap_or_default()),
            ("stop_token_ids", self.stop_token_ids.clone()),
        ];
        for (field, ids) in tokens {
            for id in ids {
                let ok = (id as usize) < limits.vocab_size;
                within(field, format_args!("of token {id}"), ok, || {
                    format!("of tokens of the vocabulary, 0 to {}", limits.vocab_size.saturating_sub(1))
                })?;
            }
        }
        Ok(())
    }

    /// Checks the bounds that hold whatever the model.
    ///
    /// # Errors
    /// As [`SamplingParams::check`].
    pub fn validate(&self) -> Result<(), ParamError> {
        let greedy = self.temperature == 0.0;
        let float = |field, x: f32, ok: bool, expected: &str| {
            within(field, format_args!("{x}"), ok && x.is_finite(), || expected.into())
        };
        float("temperature", self.temperature, self.temperature >= 0.0, "0 or more")?;
        float("top_p", self.top_p, self.top_p > 0.0 && self.top_p <= 1.0, "above 0 and at most 1")?;
        within("top_k", self.top_k, self.top_k >= -1, || "1 or more, or 0 or -1 to keep all tokens".into())?;
        float("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1")?;
        let typical = self.typical_p > 0.0 && self.typical_p <= 1.0;
        float("typical_p", self.typical_p, typical, "above 0 and at most 1")?;
        float("repetition_penalty", self.repetition_penalty, self.repetition_penalty > 0.0, "above 0")?;
        for (field, x) in [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)] {
            float(field, x, (-2.0..=2.0).contains(&x), "from -2 to 2")?;
        }
        within("n", self.n, self.n >= 1, || "1 or more".into())?;
        within("n", self.n, self.n == 1 || !greedy, || {
            "1 with a temperature of 0: all answers would be the same".into()
        })?;
        for (token, &bias) in &self.logit_bias {
            let ok = (-MOST_BIAS..=MOST_BIAS).contains(&bias);
            within("logit_bias", format_args!("{bias:?} for token {token}"), ok, || {
                format!("from -{MOST_BIAS} to {MOST_BIAS}")
            })?;
        }
        let some_empty = self.bad_words.iter().any(Vec::is_empty);
        within("bad_words", &self.bad_words, !some_empty, || "of sequences of one token or more".into())?;
        let none_allowed = self.allowed_token_ids.as_ref().is_some_and(Vec::is_empty);
        within("allowed_token_ids", [0u32; 0], !none_allowed, || "of one token or more, or unset".into())?;
        let max_tokens = self.max_tokens.unwrap_or(usize::MAX);
        within("max_tokens", max_tokens, max_tokens >= 1, || "1 or more".into())?;
        within("min_tokens", self.min_tokens, self.min_tokens <= max_tokens, || {
            format!("at most max_tokens, {max_tokens}")
        })?;
        let empty_stop = self.stop.iter().any(String::is_empty);
        within("stop", &self.stop, !empty_stop, || "of texts of one character or more".into())
    }
}

fn within(
    field: &'static str,
    found: impl Debug,
    ok: bool,
    expected: impl FnOnce() -> String,
) -> Result<(), ParamError> {
    if ok { Ok(()) } else { Err(ParamError::new(field, found, expected())) }
}

/// Biases as requests have them: an object whose keys are tokens in decimal.
///
/// # Errors
/// For what is no object, a key that is no token number, and a value that is no number. Bounds are
/// [`SamplingParams::check`]'s.
pub fn logit_bias_from_json(value: &Value) -> Result<BTreeMap<u32, f32>, ParamError> {
    const FIELD: &str = "logit_bias";
    let bad = |found: String, expected: &str| ParamError { field: FIELD, value: found, expected: expected.into() };
    let Value::Object(map) = value else {
        return Err(bad(value.to_string(), "an object of token numbers and biases, as in {\"50256\": -100}"));
    };
    map.iter()
        .map(|(key, bias)| {
            let digits = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
            let token = key.parse().ok().filter(|_| digits);
            let token = token.ok_or_else(|| bad(format!("given for {key:?}"), "given for tokens, by their numbers"))?;
            let bias = bias.as_f64().ok_or_else(|| bad(format!("{bias} for token {token}"), "a number"))?;
            Ok((token, bias as f32))
        })
        .collect()
}
