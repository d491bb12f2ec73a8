//! A tokenizer as llguidance sees it.

use std::sync::Arc;

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::GrammarError;
use crate::tokenizer::{Kind, Special, Tokenizer};

/// The tokenizer, and the tree of its tokens.
pub(super) struct Vocabulary {
    tokenizer: Arc<Tokenizer>,
    trie: TokTrie,
}

impl Vocabulary {
    pub(super) fn new(tokenizer: Arc<Tokenizer>) -> Result<Vocabulary, GrammarError> {
        let ends: Vec<u32> = tokenizer.ends().collect();
        // The token of the metadata, if there is one, is the first: where one must be chosen it is that.
        let first = tokenizer.eos().or(ends.first().copied());
        let first = first.ok_or_else(|| GrammarError::Vocabulary("a token that ends an answer".into()))?;
        let size = tokenizer.vocab_size() as u32;
        let words: Vec<Vec<u8>> = (0..size).map(|token| word(&tokenizer, token)).collect();
        let trie = TokTrie::from(&TokRxInfo::new(size, first), &words);
        let others = ends.into_iter().filter(|end| *end != first);
        let trie = trie.with_eos_tokens(&[first].into_iter().chain(others).collect::<Vec<_>>());
        Ok(Vocabulary { tokenizer, trie })
    }
}

/// The bytes by which the tree knows a token: control tokens by their names behind a byte that no UTF-8 has. Tokens without
/// any are in no text.
fn word(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let bytes = tokenizer.token_bytes(token);
    match tokenizer.kind(token) {
        Some(Kind::Control) => [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat(),
        // Nor has text such a byte.
        Some(Kind::Normal | Kind::UserDefined | Kind::Byte)
            if bytes.first() != Some(&TokTrie::SPECIAL_TOKEN_MARKER) =>
        {
            bytes.to_vec()
        }
        _ => vec![],
    }
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokenizer.encode(text, Special::AsText))
    }
}
