//! How the next token is chosen.
//!
//! ```text
//!  logits ─► raw log-probabilities (what the model says)
//!     └───► rules: mask, then bias, repetition, presence and frequency penalties, bans ─► draw ─► token
//! ```
//!
//! [`SamplingParams`] is what a caller asks for, with vLLM's names and defaults; [`SamplingParams::check`] says what is wrong
//! with it. A sequence has [`LogitRules`], its own part of the rules, which change as tokens come, and a [`Draw`], which does
//! not change. [`Chooser`] applies both on a device, and reads log-probabilities there. A row's result depends on its own
//! logits, tokens, parameters and seed, and on its position: never on what else is in the batch.

mod check;
mod chooser;
mod edit;
mod logprobs;
mod params;
mod rules;
mod seed;
#[cfg(test)]
mod tests;
mod words;

pub use check::{Limits, ParamError, logit_bias_from_json};
pub use chooser::{Chooser, LogprobsOf, RowRules};
pub use edit::{Edit, allow, allows, apply, mask_of, mask_words};
pub use logprobs::{LEAST_LOGPROB, Logprob, TokenLogprobs, host_logprobs};
pub use params::{Draw, SamplingParams};
pub use rules::LogitRules;
pub use seed::{sub_seed, unpredictable_seed};
pub use words::bad_word_sequences;
