//! Log-probabilities in the three shapes that answers have them in.

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use tegula_engine::sampling::{Logprob, TokenLogprobs};
use tegula_engine::text::token_label;
use tegula_engine::tokenizer::Tokenizer;

use crate::pieces::Spot;

/// How tokens are shown.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'t> {
    /// The model's.
    pub tokenizer: &'t Tokenizer,
    /// As `token_id:5` and not as their texts.
    pub as_ids: bool,
}

impl Labels<'_> {
    fn of(self, token: u32) -> String {
        match self.as_ids {
            true => format!("token_id:{token}"),
            false => token_label(self.tokenizer.token_bytes(token)),
        }
    }
}

/// An object that keeps the order of its keys, and numbers as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Ordered<T>(pub Vec<(String, T)>);

impl<T> Ordered<T> {
    /// Adds an entry, if there is none with its key.
    fn add(&mut self, key: String, value: T) {
        if !self.0.iter().any(|(other, _)| *other == key) {
            self.0.push((key, value));
        }
    }
}

impl<T: Serialize> Serialize for Ordered<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// As completions have them: lists with an entry for each token.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CompletionLogprobs {
    /// Characters of the text before the token.
    text_offset: Vec<usize>,
    /// Of the token; null for the first of an echoed prompt.
    token_logprobs: Vec<Option<f32>>,
    /// The token.
    tokens: Vec<String>,
    /// The most likely tokens and, if it is none of them, the one that is there; null as above.
    top_logprobs: Vec<Option<Ordered<f32>>>,
}

/// In the shape of completions: with at most so many of the most likely tokens at each spot.
pub fn completion(spots: &[Spot], top: usize, labels: Labels<'_>) -> CompletionLogprobs {
    let mut out = CompletionLogprobs::default();
    for spot in spots {
        out.text_offset.push(spot.offset);
        out.tokens.push(labels.of(spot.token));
        out.token_logprobs.push(spot.logprobs.as_ref().map(|known| known.chosen.logprob));
        out.top_logprobs.push(spot.logprobs.as_ref().map(|known| {
            let mut map = Ordered(vec![]);
            known
                .top
                .iter()
                .take(top)
                .chain([&known.chosen])
                .for_each(|one| map.add(labels.of(one.token), one.logprob));
            map
        }));
    }
    out
}

/// As chats have them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChatLogprobs {
    content: Vec<ChatSpot>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChatSpot {
    #[serde(flatten)]
    token: ChatToken,
    top_logprobs: Vec<ChatToken>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ChatToken {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
}

/// In the shape of chats.
pub fn chat(spots: &[Spot], top: usize, labels: Labels<'_>) -> ChatLogprobs {
    let shown = |one: &Logprob| ChatToken {
        token: labels.of(one.token),
        logprob: one.logprob,
        bytes: labels.tokenizer.token_bytes(one.token).to_vec(),
    };
    let spot = |known: &TokenLogprobs| ChatSpot {
        token: shown(&known.chosen),
        top_logprobs: known.top.iter().take(top).map(shown).collect(),
    };
    ChatLogprobs { content: spots.iter().filter_map(|it| it.logprobs.as_ref()).map(spot).collect() }
}

/// Of one token of a prompt, or one that could be in its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptLogprob {
    logprob: f32,
    rank: u32,
    decoded_token: String,
}

/// Of a prompt: an object for each token, null for the first. Its keys are tokens: that of the prompt, then at most so many
/// of the most likely.
pub fn prompt(all: &[Option<TokenLogprobs>], top: usize, labels: Labels<'_>) -> Vec<Option<Ordered<PromptLogprob>>> {
    let object = |known: &TokenLogprobs| {
        let mut map = Ordered(vec![]);
        let ranked = known.top.iter().take(top).zip(1..);
        for (one, rank) in [(&known.chosen, known.rank)].into_iter().chain(ranked) {
            let decoded_token = Labels { as_ids: false, ..labels }.of(one.token);
            map.add(one.token.to_string(), PromptLogprob { logprob: one.logprob, rank, decoded_token });
        }
        map
    };
    all.iter().map(|known| known.as_ref().map(object)).collect()
}
