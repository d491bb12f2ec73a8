//! What a caller asks for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::seed::{sub_seed, unpredictable_seed};

/// Sampling parameters, with vLLM's names and defaults. [`SamplingParams::check`] gives their bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingParams {
    /// Answers wanted; each has a seed of its own ([`sub_seed`]).
    pub n: u32,
    /// Divides the logits; 0 takes the most likely token, of equal ones that of the lowest number, and no filter matters.
    pub temperature: f32,
    /// Keep the most likely tokens only, this many; 0 and −1 keep all.
    pub top_k: i32,
    /// Keep the fewest most likely tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keep tokens at least this likely relative to the most likely; 0 keeps all.
    pub min_p: f32,
    /// Keep the tokens whose surprise is nearest to the expected one, the fewest whose probabilities reach this sum; 1 keeps
    /// all.
    pub typical_p: f32,
    /// Divides the positive and multiplies the negative logits of tokens that were in the prompt or the answer; 1 changes
    /// nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logits of tokens that were in the answer.
    pub presence_penalty: f32,
    /// Subtracted from a logit once for each time its token was in the answer.
    pub frequency_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: BTreeMap<u32, f32>,
    /// Sequences of tokens that the answer must not contain: the last of one never follows the others.
    pub bad_words: Vec<Vec<u32>>,
    /// Only these tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_token_ids: Option<Vec<u32>>,
    /// Least tokens of an answer: before, no token that would end it is chosen, and no stop string ends it.
    pub min_tokens: usize,
    /// Most tokens of an answer; without it, as many as the model takes.
    pub max_tokens: Option<usize>,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// Tokens that end an answer, besides the model's own.
    pub stop_token_ids: Vec<u32>,
    /// Whether the answer's text contains the stop string or token that ended it.
    pub include_stop_str_in_output: bool,
    /// The model's own end-of-text tokens end nothing.
    pub ignore_eos: bool,
    /// The same seed gives the same answer. Without one nobody can tell which answer comes: that is another thing than 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Log-probabilities of each token of the answer and of this many most likely ones: 0 for the token's alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<u32>,
    /// The same of the prompt's tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_logprobs: Option<u32>,
    /// Control tokens have no text.
    pub skip_special_tokens: bool,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            n: 1,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: BTreeMap::new(),
            bad_words: vec![],
            allowed_token_ids: None,
            min_tokens: 0,
            max_tokens: Some(16),
            stop: vec![],
            stop_token_ids: vec![],
            include_stop_str_in_output: false,
            ignore_eos: false,
            seed: None,
            logprobs: None,
            prompt_logprobs: None,
            skip_special_tokens: true,
        }
    }
}

impl SamplingParams {
    /// Always the most likely token.
    pub fn greedy() -> SamplingParams {
        SamplingParams { temperature: 0.0, ..SamplingParams::default() }
    }

    /// How tokens of each answer are drawn, in their order: with the seed that was asked for, or one that nobody can tell.
    pub fn draws(&self) -> Vec<Draw> {
        let seed = self.seed.unwrap_or_else(unpredictable_seed);
        (0..self.n).map(|sample| self.draw(sub_seed(seed, sample))).collect()
    }

    /// How tokens are drawn with this seed, whatever seed was asked for.
    pub fn draw(&self, seed: u64) -> Draw {
        Draw {
            temperature: self.temperature,
            top_k: self.top_k.max(0),
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            seed,
        }
    }

    /// The tokens that end an answer, in order: `ends`, the model's own, unless they are to be ignored, and those asked for.
    pub fn ending_tokens(&self, ends: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut all = self.stop_token_ids.clone();
        if !self.ignore_eos {
            all.extend(ends);
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// How the tokens of one answer are drawn: all that sampling on a device needs besides logits and a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Divides the logits; 0 takes the most likely token.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: i32,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// 1 keeps all.
    pub typical_p: f32,
    /// Of the noise. The token at a position depends on it, the position and the logits alone.
    pub seed: u64,
}
