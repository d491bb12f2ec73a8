//! A vocabulary made for these tests: token N is byte N for N up to 255, so texts are forced byte by byte; behind them lie
//! words, and tokens of control.

use std::sync::Arc;

use tegula_engine::chat::ChatTemplate;
use tegula_engine::gguf::{Gguf, Writer};
use tegula_engine::tokenizer::Tokenizer;

/// Words of more than one byte; they are found in no text, since there are no merges, but a model may say them.
pub const WORDS: [&str; 4] = [" the", "DEF", " wörld", "</think>"];
/// Tokens of control, in their order; the first is BOS.
pub const CONTROL: [&str; 5] = ["<|bos|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|stop|>"];

pub const BOS: u32 = 256 + WORDS.len() as u32;
pub const IM_END: u32 = BOS + 2;
/// The tokens that end answers: one is the file's end of sequence, one its end of turn, one is known by its name.
pub const ENDS: [u32; 3] = [BOS + 2, BOS + 3, BOS + 4];
pub const VOCAB: usize = 256 + WORDS.len() + CONTROL.len();

/// ChatML.
pub const CHATML: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                          {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The same behind a token that begins it.
pub fn chatml_with_bos() -> String {
    format!("<|bos|>{CHATML}")
}

pub fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source).expect("a template")
}

/// The vocabulary, for a model that wants BOS in front of every prompt, or not.
pub fn tokenizer(add_bos: bool) -> Arc<Tokenizer> {
    let bytes = (0..=255u8).map(|byte| in_alphabet(&[byte]));
    let words = WORDS.iter().map(|word| in_alphabet(word.as_bytes()));
    let texts: Vec<String> = bytes.chain(words).chain(CONTROL.map(str::to_owned)).collect();
    let mut kinds = vec![1; 256 + WORDS.len()];
    kinds.resize(texts.len(), 3);
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut file = Writer::new();
    file.meta("tokenizer.ggml.model", "gpt2");
    file.meta("tokenizer.ggml.pre", "gpt-2");
    file.meta("tokenizer.ggml.tokens", texts.as_slice());
    file.meta("tokenizer.ggml.token_type", kinds.as_slice());
    file.meta("tokenizer.ggml.merges", [].as_slice() as &[&str]);
    file.meta("tokenizer.ggml.eos_token_id", ENDS[1]);
    file.meta("tokenizer.ggml.eot_token_id", ENDS[2]);
    if add_bos {
        file.meta("tokenizer.ggml.bos_token_id", BOS);
        file.meta("tokenizer.ggml.add_bos_token", true);
    }
    let file = Gguf::from_bytes("test", file.finish()).expect("what the writer writes");
    Arc::new(Tokenizer::from_gguf(&file).expect("a whole vocabulary"))
}

/// Bytes as byte-level vocabularies write them: printable ones of Latin-1 are themselves, the others come after, in order.
fn in_alphabet(bytes: &[u8]) -> String {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let of = |b: u8| match plain(b) {
        true => char::from(b),
        false => char::from_u32(256 + (0..b).filter(|&b| !plain(b)).count() as u32).expect("a character"),
    };
    bytes.iter().map(|&b| of(b)).collect()
}

/// The tokens of a text: its bytes.
pub fn bytes(text: impl AsRef<[u8]>) -> Vec<u32> {
    text.as_ref().iter().map(|&b| u32::from(b)).collect()
}
