//! What is asked again and again, and what answers must be whatever was asked.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::client::{Client, Events};

pub const COMPLETIONS: &str = "/v1/completions";
pub const CHAT: &str = "/v1/chat/completions";

/// A request for the greedy continuation of a prompt, with these further fields.
pub fn completion(prompt: impl Into<Value>, more: Value) -> Value {
    with(json!({ "prompt": prompt.into(), "temperature": 0 }), more)
}

/// A request for the greedy answer to a message, with these further fields.
pub fn message(content: &str, more: Value) -> Value {
    with(json!({ "messages": [{ "role": "user", "content": content }], "temperature": 0 }), more)
}

/// `body` with further fields.
pub fn with(mut body: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("fields are an object: {more}") };
    for (name, value) in more {
        body[name] = value;
    }
    body
}

/// One answer, whole or put together from a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    pub text: String,
    pub finish: String,
    pub stop: Value,
    /// `logprobs`, of a stream put together; null if there are none.
    pub logprobs: Value,
    /// Names and arguments of calls.
    pub calls: Vec<(String, String)>,
}

/// An answer of either endpoint, checked for what every answer must be.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub choices: Vec<Choice>,
    /// Null where none is told.
    pub usage: Value,
}

impl Reply {
    pub fn text(&self) -> &str {
        &self.choices[0].text
    }

    pub fn finish(&self) -> &str {
        &self.choices[0].finish
    }

    #[track_caller]
    pub fn usage(&self, name: &str) -> u64 {
        self.usage[name].as_u64().unwrap_or_else(|| panic!("usage is {}", self.usage))
    }

    pub fn cached(&self) -> u64 {
        self.usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
    }
}

/// Which endpoint a request is for: that with messages is for chat.
pub fn endpoint(body: &Value) -> &'static str {
    if body.get("messages").is_some() { CHAT } else { COMPLETIONS }
}

/// The whole answer to a request that must be served.
#[track_caller]
pub fn ask(client: &Client, body: &Value) -> Reply {
    let path = endpoint(body);
    let answer = client.post(path, body).ok();
    let object = if path == CHAT { "chat.completion" } else { "text_completion" };
    assert_eq!(answer["object"], object);
    assert!(answer["id"].as_str().is_some_and(|id| !id.is_empty()), "{answer}");
    assert!(answer["created"].as_u64().is_some() && answer["model"].is_string(), "{answer}");
    let usage = answer["usage"].clone();
    let count = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("usage is {usage}"));
    assert_eq!(count("total_tokens"), count("prompt_tokens") + count("completion_tokens"));
    let choices = answer["choices"].as_array().expect("choices");
    let choices = choices.iter().enumerate().map(|(index, choice)| {
        assert_eq!(choice["index"], index);
        let (text, calls) = match path {
            CHAT => (&choice["message"]["content"], calls(&choice["message"])),
            _ => (&choice["text"], vec![]),
        };
        if path == CHAT {
            assert_eq!(choice["message"]["role"], "assistant");
        }
        let mut logprobs = Value::Null;
        put_logprobs(&mut logprobs, &choice["logprobs"]);
        Choice {
            text: text.as_str().unwrap_or_default().to_owned(),
            finish: choice["finish_reason"].as_str().expect("a reason").to_owned(),
            stop: choice["stop_reason"].clone(),
            logprobs,
            calls,
        }
    });
    Reply { choices: choices.collect(), usage }
}

fn calls(message: &Value) -> Vec<(String, String)> {
    let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    calls.iter().map(|c| (text(&c["function"]["name"]), text(&c["function"]["arguments"]))).collect()
}

/// The answer to a request as a stream, put together.
pub fn streamed(client: &Client, body: &Value) -> Reply {
    let asked = body["stream_options"]["include_usage"] == true;
    put_together(client.stream(endpoint(body), body), asked)
}

/// Puts a stream together, and checks it: each event is a chunk of the same answer, a choice ends once and then says
/// nothing more, usage comes last, alone, and iff `usage` was asked for.
pub fn put_together(events: Events, usage: bool) -> Reply {
    let mut choices: BTreeMap<u64, Choice> = BTreeMap::new();
    let mut told = Value::Null;
    let mut first: Option<Value> = None;
    for event in events {
        assert!(event.get("error").is_none(), "{event}");
        assert!(told.is_null(), "something follows usage: {event}");
        let same = first.get_or_insert_with(|| event.clone());
        for field in ["id", "object", "created", "model"] {
            assert_eq!(event[field], same[field], "{event}");
        }
        let chat = event["object"] == "chat.completion.chunk";
        assert!(chat || event["object"] == "text_completion", "{event}");
        let all = event["choices"].as_array().expect("choices");
        match event.get("usage") {
            Some(Value::Object(counts)) => {
                assert!(usage && all.is_empty(), "usage where there should be none: {event}");
                told = Value::Object(counts.clone());
            }
            Some(Value::Null) => assert!(usage && !all.is_empty(), "usage that nobody asked for: {event}"),
            None => assert!(!all.is_empty(), "an event that says nothing: {event}"),
            other => panic!("usage is {other:?}"),
        }
        for choice in all {
            let index = choice["index"].as_u64().expect("an index");
            let known = choices.entry(index).or_default();
            assert!(known.finish.is_empty(), "choice {index} goes on after its end: {event}");
            let text = if chat { &choice["delta"]["content"] } else { &choice["text"] };
            known.text += text.as_str().unwrap_or_default();
            put_calls(&mut known.calls, &choice["delta"]);
            put_logprobs(&mut known.logprobs, &choice["logprobs"]);
            if let Some(reason) = choice["finish_reason"].as_str() {
                (known.finish, known.stop) = (reason.to_owned(), choice["stop_reason"].clone());
            }
        }
    }
    assert_eq!(told.is_object(), usage, "usage comes if it is asked for");
    assert!(choices.keys().copied().eq(0..choices.len() as u64), "choices are numbered from 0");
    assert!(choices.values().all(|c| !c.finish.is_empty()), "every choice ends: {choices:?}");
    Reply { choices: choices.into_values().collect(), usage: told }
}

fn put_calls(calls: &mut Vec<(String, String)>, delta: &Value) {
    for call in delta["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let index = call["index"].as_u64().expect("an index") as usize;
        if let Some(name) = call["function"]["name"].as_str() {
            assert_eq!(index, calls.len(), "calls come in order: {delta}");
            assert!(call["id"].is_string() && call["type"] == "function", "a call begins with its id: {delta}");
            calls.push((name.to_owned(), String::new()));
        }
        calls[index].1 += call["function"]["arguments"].as_str().unwrap_or_default();
    }
}

/// Appends the lists of one `logprobs` object to those before.
fn put_logprobs(all: &mut Value, more: &Value) {
    let Value::Object(more) = more else { return };
    for (name, value) in more {
        if let Value::Array(values) = value {
            if !all[name].is_array() {
                all[name] = json!([]);
            }
            all[name].as_array_mut().expect("a list").extend(values.iter().cloned());
        }
    }
}

/// Asks for a request's answer whole and as a stream; they must be the same. Returns it.
#[track_caller]
pub fn both(client: &Client, body: &Value) -> Reply {
    let whole = ask(client, body);
    let stream = streamed(client, &with(body.clone(), json!({ "stream_options": { "include_usage": true } })));
    assert_eq!(stream.choices, whole.choices, "streamed and whole");
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(stream.usage[name], whole.usage[name], "{name}, streamed and whole");
    }
    whole
}
