//! Bad words, from texts to tokens.

use crate::tokenizer::{Special, Tokenizer};

/// The token sequences that a word would be written in: at the start of a text, and after a space where that makes other
/// tokens. [`super::SamplingParams::bad_words`] takes them. None for a word without tokens.
pub fn bad_word_sequences(tokenizer: &Tokenizer, word: &str) -> Vec<Vec<u32>> {
    let word = word.trim_start();
    let mut all: Vec<Vec<u32>> = [word.to_owned(), format!(" {word}")]
        .iter()
        .map(|text| tokenizer.encode(text, Special::AsText))
        .filter(|tokens| !word.is_empty() && !tokens.is_empty())
        .collect();
    all.dedup();
    all
}
