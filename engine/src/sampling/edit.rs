//! Rules on one row of logits as data, and what they mean: this is what kernels are compared with.

use crate::sampling::params::SamplingParams;

/// What happens to the logit of one token: see [`Edit::of`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edit {
    /// The token. A row has one edit of it at most.
    pub token: u32,
    /// Added first; −∞ is a ban, which holds whatever the logit.
    pub bias: f32,
    /// Then a logit above 0 is divided by this, another multiplied by it.
    pub repetition: f32,
    /// Then this is subtracted.
    pub penalty: f32,
}

impl Edit {
    /// The edit that changes nothing.
    pub const fn none(token: u32) -> Edit {
        Edit { token, bias: 0.0, repetition: 1.0, penalty: 0.0 }
    }

    /// The edit after which a token cannot come.
    pub const fn ban(token: u32) -> Edit {
        Edit { bias: f32::NEG_INFINITY, ..Edit::none(token) }
    }

    /// Whether the token cannot come.
    pub fn is_ban(&self) -> bool {
        self.bias == f32::NEG_INFINITY
    }

    /// A logit after the edit.
    pub fn of(&self, logit: f32) -> f32 {
        if self.is_ban() {
            return f32::NEG_INFINITY;
        }
        let x = logit + self.bias;
        (if x > 0.0 { x / self.repetition } else { x * self.repetition }) - self.penalty
    }
}

/// Words of a mask for a vocabulary: bit `t % 32` of word `t / 32` stands for token `t`.
pub fn mask_words(vocab_size: usize) -> usize {
    vocab_size.div_ceil(32)
}

/// The mask that allows these tokens. Those outside the vocabulary are left out.
pub fn mask_of(tokens: &[u32], vocab_size: usize) -> Vec<u32> {
    let mut mask = vec![0; mask_words(vocab_size)];
    tokens.iter().filter(|&&t| (t as usize) < vocab_size).for_each(|&t| allow(&mut mask, t));
    mask
}

/// Allows a token of the mask.
pub fn allow(mask: &mut [u32], token: u32) {
    if let Some(word) = mask.get_mut(token as usize / 32) {
        *word |= 1 << (token % 32);
    }
}

/// Whether a mask allows a token; none past its end.
pub fn allows(mask: &[u32], token: u32) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Rules on a row of logits: what the mask does not allow becomes −∞, then the edits happen.
pub fn apply(edits: &[Edit], mask: Option<&[u32]>, logits: &mut [f32]) {
    if let Some(mask) = mask {
        for (token, logit) in (0..).zip(logits.iter_mut()) {
            if !allows(mask, token) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    for edit in edits {
        if let Some(logit) = logits.get_mut(edit.token as usize) {
            *logit = edit.of(*logit);
        }
    }
}

impl SamplingParams {
    /// The edit of a token that was in the answer `count` times, and in the prompt or not.
    pub(super) fn edit(&self, token: u32, count: u32, in_prompt: bool) -> Edit {
        let said = count > 0;
        Edit {
            token,
            bias: self.logit_bias.get(&token).copied().unwrap_or(0.0),
            repetition: if said || in_prompt { self.repetition_penalty } else { 1.0 },
            penalty: if said { self.frequency_penalty * count as f32 + self.presence_penalty } else { 0.0 },
        }
    }
}
