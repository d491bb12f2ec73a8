//! Text of an answer, as its tokens come.
//!
//! ```text
//!  token ─► bytes ─► whole characters ─► text that no stop string can still claim ─► delta
//! ```
//!
//! Laws, whatever the tokens: all deltas together are the text of the whole; no character comes in pieces, and U+FFFD only
//! for bytes that can never be a character; nothing that is held back could be given out, and nothing given out is ever
//! taken back. [`Detokenizer`] does it for one answer, [`StopStrings`] finds the end.

mod detokenizer;
mod label;
mod stop;
#[cfg(test)]
mod tests;

pub use detokenizer::{Delta, Detokenizer, StopReason};
pub use label::token_label;
pub use stop::{Found, StopStrings};
