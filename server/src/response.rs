//! The bodies of answers: whole ones, and the chunks of streams.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use tegula_engine::tokenizer::Tokenizer;

use crate::logprobs::{self, ChatLogprobs, CompletionLogprobs, Labels, Ordered, PromptLogprob};
use crate::pieces::{CallPiece, Piece, PromptNews};
use crate::sampling::Kind;

/// What all bodies of one answer have in common, and what they show.
#[derive(Clone, Debug)]
pub struct Shape {
    pub kind: Kind,
    /// Of the answer.
    pub id: String,
    /// Of the model.
    pub model: String,
    /// In seconds since 1970.
    pub created: u64,
    /// The model's.
    pub tokenizer: Arc<Tokenizer>,
    /// Alternatives of each token of an answer, if log-probabilities are wanted.
    pub logprobs: Option<usize>,
    /// Of each token of a prompt.
    pub prompt_logprobs: Option<usize>,
    /// Whether numbers of tokens are shown.
    pub token_ids: bool,
    /// Whether tokens are named by their numbers.
    pub tokens_as_ids: bool,
}

/// Tokens that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompts, each counted once.
    pub prompt: usize,
    /// Of those, tokens that were in the cache.
    pub cached: usize,
    /// Of all answers.
    pub completion: usize,
}

impl Serialize for Usage {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Details {
            cached_tokens: usize,
        }
        #[derive(Serialize)]
        struct Body {
            prompt_tokens: usize,
            completion_tokens: usize,
            total_tokens: usize,
            prompt_tokens_details: Details,
        }
        Body {
            prompt_tokens: self.prompt,
            completion_tokens: self.completion,
            total_tokens: self.prompt + self.completion,
            prompt_tokens_details: Details { cached_tokens: self.cached },
        }
        .serialize(serializer)
    }
}

/// A body.
#[derive(Debug, Serialize)]
pub struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    /// Absent, null, or told.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
    #[serde(flatten)]
    prompt: PromptShown<'a>,
}

#[derive(Debug, Serialize)]
struct Choice<'a> {
    index: usize,
    #[serde(flatten)]
    said: Option<Said<'a>>,
    logprobs: Option<Logprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: &'a Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
    #[serde(flatten)]
    prompt: PromptShown<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Said<'a> {
    Text(&'a str),
    Message(Message<'a>),
    Delta(Delta<'a>),
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

#[derive(Debug, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

/// A call, or more of one.
#[derive(Debug, Serialize)]
struct Call<'a> {
    /// In streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    function: Function<'a>,
}

#[derive(Debug, Serialize)]
struct Function<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    arguments: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Logprobs {
    Completion(CompletionLogprobs),
    Chat(ChatLogprobs),
}

#[derive(Debug, Default, Serialize)]
struct PromptShown<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Option<Ordered<PromptLogprob>>>>,
}

impl Shape {
    /// The body of a whole answer: its choices, in order.
    pub fn whole<'a>(&'a self, choices: &'a [Piece], usage: Usage) -> Body<'a> {
        self.body(choices, Some(Some(usage)), true)
    }

    /// A chunk with more of an answer. The usage is absent, null, or told.
    pub fn chunk<'a>(&'a self, piece: &'a Piece, usage: Option<Option<Usage>>) -> Body<'a> {
        self.body(std::slice::from_ref(piece), usage, false)
    }

    /// The chunk behind all others, which tells the usage.
    pub fn last(&self, usage: Usage) -> Body<'_> {
        self.body(&[], Some(Some(usage)), false)
    }

    fn body<'a>(&'a self, pieces: &'a [Piece], usage: Option<Option<Usage>>, whole: bool) -> Body<'a> {
        let (id, request_id) = match self.kind {
            Kind::Inference => (None, Some(&*self.id)),
            Kind::Completions | Kind::Chat => (Some(&*self.id), None),
        };
        // A chat has one prompt, of which the body tells; completions have several, of which their choices tell.
        let of_body = self.kind != Kind::Completions;
        let prompt = pieces.iter().find_map(|piece| piece.prompt.as_deref()).filter(|_| of_body);
        Body {
            id,
            request_id,
            object: match (self.kind, whole) {
                (Kind::Completions, _) => "text_completion",
                (Kind::Chat, true) => "chat.completion",
                (Kind::Chat, false) => "chat.completion.chunk",
                (Kind::Inference, true) => "generate",
                (Kind::Inference, false) => "generate.chunk",
            },
            created: self.created,
            model: &self.model,
            choices: pieces.iter().map(|piece| self.choice(piece, whole)).collect(),
            usage,
            prompt: prompt.map_or_else(PromptShown::default, |news| self.prompt(news)),
        }
    }

    fn choice<'a>(&'a self, piece: &'a Piece, whole: bool) -> Choice<'a> {
        let labels = Labels { tokenizer: &self.tokenizer, as_ids: self.tokens_as_ids };
        // Where a chunk has no tokens, as one that only says a role, there is nothing to say of them.
        let logprobs = self.logprobs.filter(|_| whole || !piece.logprobs.is_empty()).map(|top| match self.kind {
            Kind::Completions => Logprobs::Completion(logprobs::completion(&piece.logprobs, top, labels)),
            Kind::Chat | Kind::Inference => Logprobs::Chat(logprobs::chat(&piece.logprobs, top, labels)),
        });
        let own = piece.prompt.as_deref().filter(|_| self.kind == Kind::Completions);
        Choice {
            index: piece.index,
            said: self.said(piece, whole),
            logprobs,
            finish_reason: piece.end.as_ref().map(|end| end.reason),
            stop_reason: piece.end.as_ref().map_or(&Value::Null, |end| &end.stop),
            token_ids: (self.token_ids || self.kind == Kind::Inference).then_some(&*piece.tokens),
            prompt: own.map_or_else(PromptShown::default, |news| self.prompt(news)),
        }
    }

    fn said<'a>(&self, piece: &'a Piece, whole: bool) -> Option<Said<'a>> {
        match (self.kind, whole) {
            (Kind::Inference, _) => None,
            (Kind::Completions, _) => Some(Said::Text(&piece.text)),
            (Kind::Chat, true) => Some(Said::Message(Message {
                role: "assistant",
                content: (!piece.text.is_empty() || piece.calls.is_empty()).then_some(&piece.text),
                refusal: None,
                tool_calls: piece.calls.iter().map(|call| shown(call, true)).collect(),
            })),
            (Kind::Chat, false) => Some(Said::Delta(Delta {
                role: piece.begins.then_some("assistant"),
                content: (!piece.text.is_empty() || piece.calls.is_empty() && piece.end.is_none())
                    .then_some(&piece.text),
                tool_calls: piece.calls.iter().map(|call| shown(call, false)).collect(),
            })),
        }
    }

    fn prompt<'a>(&'a self, news: &'a PromptNews) -> PromptShown<'a> {
        let labels = Labels { tokenizer: &self.tokenizer, as_ids: self.tokens_as_ids };
        let known = self.prompt_logprobs.zip(news.logprobs.as_deref());
        PromptShown {
            prompt_token_ids: self.token_ids.then_some(&*news.tokens),
            prompt_logprobs: known.map(|(top, all)| logprobs::prompt(all, top, labels)),
        }
    }
}

fn shown(call: &CallPiece, whole: bool) -> Call<'_> {
    let begins = call.begins.as_ref();
    Call {
        index: (!whole).then_some(call.index),
        id: begins.map(|(id, _)| &**id),
        kind: begins.map(|_| "function"),
        function: Function { name: begins.map(|(_, name)| &**name), arguments: &call.arguments },
    }
}
