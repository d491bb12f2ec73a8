//! What the endpoints that generate say, around a model whose every token is known.

mod chat;
mod events;
mod failures;
mod inference;
mod logprobs;
mod odd;
mod requests;
mod same;

use serde_json::{Value, json};

use super::server::{Server, scripted};
use super::vocabulary::bytes;

/// A server whose model says this, then ends.
fn says(text: &str) -> Server {
    Server::start(scripted().answers(&bytes(text)))
}

/// A list of something in an answer.
#[track_caller]
fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("a list, not {value}"))
}

/// The names of an object's fields, in their order.
#[track_caller]
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("an object, not {value}")).keys().map(String::as_str).collect()
}

/// A message of a conversation.
fn said(role: &str, content: impl Into<Value>) -> Value {
    json!({ "role": role, "content": content.into() })
}
