//! Text to token numbers and back, from the vocabulary inside a GGUF file.
//!
//! Byte-level BPE (`tokenizer.ggml.model = gpt2`): special tokens are found first (only where the caller asks for
//! it), the text between them is cut into pieces (`split`) and each piece merged (`bpe`). Any text can be encoded and
//! comes back as the same bytes, save for bytes the vocabulary has no token for (some vocabularies lack control
//! characters), which are dropped.

mod alphabet;
mod bpe;
pub mod small;
mod split;
mod stream;

use std::collections::{BTreeSet, HashMap};

use crate::gguf::{Gguf, GgufError, Problem};
use bpe::Bpe;
use split::Rule;
pub use stream::Utf8Stream;

const TOKENS: &str = "tokenizer.ggml.tokens";
const KINDS: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const MODEL: &str = "tokenizer.ggml.model";
const RULE: &str = "tokenizer.ggml.pre";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of text.
    Normal,
    /// Stands for what cannot be encoded.
    Unknown,
    /// Structure, such as the start of a message; never part of ordinary text.
    Control,
    /// Added to the vocabulary as a whole; found in any text.
    UserDefined,
    /// In the table only to fill it.
    Unused,
    /// A single byte.
    Byte,
}

impl Kind {
    fn from_id(id: i32) -> Option<Kind> {
        const ALL: [Kind; 6] =
            [Kind::Normal, Kind::Unknown, Kind::Control, Kind::UserDefined, Kind::Unused, Kind::Byte];
        ALL.get(usize::try_from(id).ok()?.checked_sub(1)?).copied()
    }
}

/// How the texts of control tokens inside a text are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// As ordinary characters: right for anything a user wrote.
    AsText,
    /// As the control tokens they name: right for a prompt the program composed.
    Parse,
}

/// Texts of tokens after which a model has said all; a vocabulary may have several beside its end-of-sequence token.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
];

/// A vocabulary with its rules.
#[derive(Debug)]
pub struct Tokenizer {
    rule: Rule,
    bpe: Bpe,
    tokens: Vec<Token>,
    /// Tokens that are found in text as a whole, longest text first.
    whole: Vec<u32>,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    ends: BTreeSet<u32>,
}

#[derive(Debug)]
struct Token {
    bytes: Box<[u8]>,
    kind: Kind,
}

impl Tokenizer {
    /// Builds the tokenizer a model file describes.
    ///
    /// # Errors
    /// If the file has no vocabulary, one of another family than byte-level BPE, or a damaged one; the error names the
    /// metadata key.
    pub fn from_gguf(file: &Gguf) -> Result<Tokenizer, GgufError> {
        let bad = |key: &str, text: String| file.key_error(key, Problem::KeyValue(text));
        let model: &str = file.require(MODEL)?;
        if model != "gpt2" {
            return Err(bad(
                MODEL,
                format!("tokenizer `{model}` is not supported; supported is gpt2 (byte-level BPE)"),
            ));
        }
        let rule_name: &str = file.get(RULE)?.unwrap_or("default");
        let rule = Rule::from_name(rule_name).ok_or_else(|| {
            bad(RULE, format!("pre-tokenizer `{rule_name}` is not supported; supported are {}", Rule::names()))
        })?;

        let texts: Vec<&str> = file.require(TOKENS)?;
        let size = u32::try_from(texts.len())
            .ok()
            .filter(|&n| n > 0 && n <= 1 << 24)
            .ok_or_else(|| bad(TOKENS, format!("{} tokens; a vocabulary has between 1 and 2^24", texts.len())))?;
        let kinds = kinds(file, texts.len())?;
        let merges: Vec<&str> = file.require(MERGES)?;
        let numbers: HashMap<&str, u32> = texts.iter().zip(0..).map(|(&text, i)| (text, i)).collect();
        let bpe = Bpe::new(&numbers, size, &merges).map_err(|bpe::BadMerge { line }| {
            bad(MERGES, format!("entry {line} is {:?}; it must be two symbols with one space between", merges[line]))
        })?;

        let tokens: Vec<Token> = texts
            .iter()
            .zip(kinds)
            .map(|(text, kind)| Token {
                // Whole tokens are written plainly, the others in the alphabet of bytes.
                bytes: match kind {
                    Kind::Control | Kind::UserDefined | Kind::Unknown => text.as_bytes().into(),
                    _ => alphabet::bytes_of(text).into(),
                },
                kind,
            })
            .collect();
        let is_whole =
            |t: &Token| matches!(t.kind, Kind::Control | Kind::UserDefined | Kind::Unknown) && !t.bytes.is_empty();
        let mut whole: Vec<u32> = (0..size).filter(|&i| is_whole(&tokens[i as usize])).collect();
        whole.sort_by_key(|&i| std::cmp::Reverse(tokens[i as usize].bytes.len()));

        let id = |name: &str| special_id(file, name, size);
        let (bos, eos) = (id("bos")?, id("eos")?);
        let mut ends: BTreeSet<u32> = END_TEXTS.iter().filter_map(|text| numbers.get(text).copied()).collect();
        ends.extend([eos, id("eot")?, id("eom")?].into_iter().flatten());
        let add_bos = file.get("tokenizer.ggml.add_bos_token")?.unwrap_or(false);
        Ok(Tokenizer { rule, bpe, tokens, whole, bos, eos, add_bos, ends })
    }

    /// The tokens of `text`. No token is added in front: see [`Tokenizer::add_bos`].
    pub fn encode(&self, text: &str, special: Special) -> Vec<u32> {
        self.encode_with(text, special, None)
    }

    /// As [`Tokenizer::encode`] with [`Special::Parse`], of a text that was guarded by [`Tokenizer::guard`]: control
    /// tokens are not found across a guard, and guards are taken out before the text between is encoded.
    pub fn encode_guarded(&self, text: &str, guard: char) -> Vec<u32> {
        self.encode_with(text, Special::Parse, Some(guard))
    }

    fn encode_with(&self, text: &str, special: Special, guard: Option<char>) -> Vec<u32> {
        let mut out = Vec::new();
        for part in self.partition(text, special) {
            match (part, guard) {
                (Part::Token(token), _) => out.push(token),
                (Part::Text(text), Some(guard)) if text.contains(guard) => {
                    self.encode_text(&text.replace(guard, ""), &mut out);
                }
                (Part::Text(text), _) => self.encode_text(text, &mut out),
            }
        }
        out
    }

    fn encode_text(&self, text: &str, out: &mut Vec<u32>) {
        self.rule.split(text).into_iter().for_each(|piece| self.bpe.encode(piece.as_bytes(), out));
    }

    /// Cuts out the tokens that are found as a whole: all occurrences of the longest first, left to right, then of the
    /// next in what remains.
    fn partition<'t>(&self, text: &'t str, special: Special) -> Vec<Part<'t>> {
        let mut parts = vec![Part::Text(text)];
        for &token in &self.whole {
            let Token { bytes, kind } = &self.tokens[token as usize];
            if special == Special::AsText && *kind != Kind::UserDefined {
                continue;
            }
            let Ok(needle) = std::str::from_utf8(bytes) else { continue };
            if !text.contains(needle) {
                continue;
            }
            let cut = |part| match part {
                Part::Text(text) => interleave(text.split(needle), token),
                Part::Token(_) => vec![part],
            };
            parts = parts.into_iter().flat_map(cut).collect();
        }
        parts
    }

    /// `text` with `guard` put into every occurrence of a control token's text, so that it cannot become that token
    /// when a program puts it into a larger text.
    ///
    /// `guard` must not occur in `text`.
    pub fn guard(&self, text: &str, guard: char) -> String {
        let mut out = text.to_owned();
        for &token in &self.whole {
            let Token { bytes, kind } = &self.tokens[token as usize];
            let Ok(needle) = std::str::from_utf8(bytes) else { continue };
            // A name of one character has no inside; no vocabulary names a control token so.
            let Some((cut, _)) = needle.char_indices().nth(1).filter(|_| *kind != Kind::UserDefined) else { continue };
            let broken = format!("{}{guard}{}", &needle[..cut], &needle[cut..]);
            // Again and again, because occurrences can overlap.
            while out.contains(needle) {
                out = out.replace(needle, &broken);
            }
        }
        out
    }

    /// The text of `tokens`, control tokens left out, anything that is not UTF-8 as U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.text_bytes(token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes a token contributes to a text: none for a control token or a number outside the vocabulary.
    pub fn text_bytes(&self, token: u32) -> &[u8] {
        match self.kind(token) {
            None | Some(Kind::Control | Kind::Unknown | Kind::Unused) => &[],
            Some(_) => self.token_bytes(token),
        }
    }

    /// The bytes of a token, those of a control token's name too; none for a number outside the vocabulary.
    pub fn token_bytes(&self, token: u32) -> &[u8] {
        self.tokens.get(token as usize).map_or(&[], |token| &token.bytes)
    }

    /// What a token is for; `None` for a number outside the vocabulary.
    pub fn kind(&self, token: u32) -> Option<Kind> {
        self.tokens.get(token as usize).map(|token| token.kind)
    }

    /// How many tokens there are; their numbers are `0..vocab_size`.
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// The token that begins a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that ends a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.eos
    }

    /// Whether the model expects [`Tokenizer::bos`] in front of every prompt.
    pub fn add_bos(&self) -> bool {
        self.add_bos
    }

    /// All tokens after which a model has finished, in order: the file's end tokens, and those known by their texts.
    pub fn ends(&self) -> impl Iterator<Item = u32> + '_ {
        self.ends.iter().copied()
    }

    /// Whether a model that says this token has finished.
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }
}

#[derive(Debug, Clone, Copy)]
enum Part<'t> {
    Token(u32),
    Text(&'t str),
}

/// The texts with `token` between each two; empty texts left out.
fn interleave<'t>(texts: impl Iterator<Item = &'t str>, token: u32) -> Vec<Part<'t>> {
    let mut out = Vec::new();
    for (i, text) in texts.enumerate() {
        if i > 0 {
            out.push(Part::Token(token));
        }
        if !text.is_empty() {
            out.push(Part::Text(text));
        }
    }
    out
}

fn kinds(file: &Gguf, tokens: usize) -> Result<Vec<Kind>, GgufError> {
    let Some(ids) = file.get::<Vec<i32>>(KINDS)? else { return Ok(vec![Kind::Normal; tokens]) };
    let bad = |text: String| file.key_error(KINDS, Problem::KeyValue(text));
    if ids.len() != tokens {
        return Err(bad(format!("{} entries for {tokens} tokens; there must be one each", ids.len())));
    }
    ids.into_iter()
        .enumerate()
        .map(|(token, id)| {
            Kind::from_id(id).ok_or_else(|| bad(format!("token {token} has type {id}; types are 1 to 6")))
        })
        .collect()
}

fn special_id(file: &Gguf, name: &str, size: u32) -> Result<Option<u32>, GgufError> {
    let key = format!("tokenizer.ggml.{name}_token_id");
    let Some(id) = file.get::<u32>(&key)? else { return Ok(None) };
    if id < size {
        return Ok(Some(id));
    }
    let text = format!("token {id} is outside the vocabulary of {size} tokens");
    Err(file.key_error(&key, Problem::KeyValue(text)))
}
