//! A vocabulary for tests: tokens 0 to 255 are the bytes, then come words, then control tokens.

use super::{Tokenizer, alphabet};
use crate::gguf::{Gguf, Writer};

/// The tokenizer with these words, no two the same and none a single byte, and control tokens. The first of those ends a
/// text.
pub fn small(words: &[&[u8]], control: &[&str]) -> Tokenizer {
    let bytes = (0..=255u8).map(|byte| vec![byte]);
    let text = |bytes: Vec<u8>| bytes.into_iter().map(alphabet::char_of).collect::<String>();
    let mut texts: Vec<String> = bytes.chain(words.iter().map(|w| w.to_vec())).map(text).collect();
    let mut kinds = vec![1; texts.len()];
    let eos = texts.len() as u32;
    texts.extend(control.iter().map(|&name| name.to_owned()));
    kinds.resize(texts.len(), 3);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.meta("tokenizer.ggml.model", "gpt2");
    writer.meta("tokenizer.ggml.pre", "gpt-2");
    writer.meta("tokenizer.ggml.tokens", texts.as_slice());
    writer.meta("tokenizer.ggml.token_type", kinds.as_slice());
    writer.meta("tokenizer.ggml.merges", [].as_slice() as &[&str]);
    writer.meta("tokenizer.ggml.eos_token_id", eos);
    let file = Gguf::from_bytes("small", writer.finish()).expect("what the writer writes");
    Tokenizer::from_gguf(&file).expect("a whole vocabulary")
}
