//! Texts of a given number of tokens: of words that are one token each, wherever they stand.

use rand::Rng;
use rand::seq::IndexedRandom;
use tegula_engine::Error;
use tegula_engine::tokenizer::{Special, Tokenizer};

/// The words of a vocabulary that are one token: a space and letters, which no tokenizer merges over.
pub(super) struct Words<'t> {
    tokenizer: &'t Tokenizer,
    words: Vec<&'t str>,
}

/// Fewer would make texts that repeat themselves.
const FEWEST: usize = 64;

impl<'t> Words<'t> {
    pub fn of(tokenizer: &'t Tokenizer) -> Result<Words<'t>, Error> {
        let word = |token: u32| {
            let text = std::str::from_utf8(tokenizer.text_bytes(token)).ok()?;
            let letters = text.strip_prefix(' ')?;
            let plain = letters.len() > 1 && letters.bytes().all(|b| b.is_ascii_lowercase());
            (plain && tokenizer.encode(text, Special::AsText) == [token]).then_some(text)
        };
        let words: Vec<&str> = (0..tokenizer.vocab_size() as u32).filter_map(word).collect();
        if words.len() < FEWEST {
            return Err(Error::Usage(format!(
                "prompts cannot be made for this tokenizer: {} of its tokens are words, and {FEWEST} are wanted",
                words.len()
            )));
        }
        Ok(Words { tokenizer, words })
    }

    /// A random text that is `n` tokens.
    pub fn text(&self, n: usize, rng: &mut impl Rng) -> String {
        // There are words: `of` saw to that.
        (0..n).filter_map(|_| self.words.choose(rng)).copied().collect()
    }

    pub fn tokens(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(text, Special::AsText)
    }
}
