//! Requests of many kinds, and their answers, whole or as a stream.

use std::io;

use serde_json::{Map, Value, json};

use crate::http::{Body, Connection, Events, Head, Response};
use crate::random::Random;

/// A request that has one right answer: greedy, or with a seed.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub path: &'static str,
    /// Without `stream` and what does not change the answer.
    pub body: Map<String, Value>,
}

/// What was answered, save for what differs from one time to the next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub choices: Vec<Choice>,
    /// Tokens of the prompt and of the answers.
    pub tokens: (u64, u64),
}

/// One sample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    pub text: String,
    /// Names and arguments of calls.
    pub calls: Vec<(String, String)>,
    /// The lists of log-probabilities; streams send them in pieces.
    pub logprobs: Value,
    pub finish: Option<String>,
}

/// How a stream was read.
pub enum Reading {
    /// To its end.
    Whole(Answer),
    /// So far.
    Part(Answer),
    /// It was refused.
    Refused(Response),
}

const WORDS: &[&str] = &[
    "the",
    "river",
    "of",
    "light",
    "was",
    "running",
    "under",
    "an",
    "old",
    "stone",
    "bridge",
    "when",
    "first",
    "snow",
    "fell",
    "and",
    "nobody",
    "in",
    "town",
    "knew",
    "why",
    "its",
    "water",
    "would",
    "not",
    "freeze",
    "children",
    "asked",
    "their",
    "mothers",
    "who",
    "said",
    "that",
    "it",
    "carried",
    "a",
    "memory",
    "from",
    "far",
    "mountains",
    "where",
    "sun",
    "sleeps",
    "each",
    "evening",
    "with",
    "one",
    "eye",
    "open",
    "for",
    "travellers",
    "lost",
    "on",
    "roads",
];

/// So many words.
fn words(random: &mut Random, n: usize) -> String {
    let words: Vec<&str> = (0..n).map(|_| *random.choose(WORDS)).collect();
    words.join(" ")
}

/// Cases of all kinds: `most` of them.
pub fn cases(seed: u64, most: usize) -> Vec<Case> {
    let mut random = Random(seed);
    // Several share this beginning.
    let shared = words(&mut random, 180);
    let lengths = [3, 40, 12, 90, 5, 240, 25, 8, 150, 60, 18, 420];
    let outputs = [24, 8, 40, 1, 16, 12, 64, 32, 4, 20, 48, 10];
    let mut cases = vec![];
    for i in 0..most {
        let (length, max_tokens) = (lengths[i % lengths.len()], outputs[(i * 5 + i / lengths.len()) % outputs.len()]);
        let prompt = match i % 4 {
            3 => format!("{shared} {}", words(&mut random, length / 4)),
            _ => words(&mut random, length),
        };
        let (name, path, more) = kind(i, prompt);
        let Value::Object(more) = more else { unreachable!("each kind is an object") };
        let mut body = Map::from_iter([("max_tokens".to_owned(), json!(max_tokens))]);
        body.extend(more);
        cases.push(Case { name: format!("{i} {name}"), path, body });
    }
    cases
}

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

fn kind(i: usize, prompt: String) -> (&'static str, &'static str, Value) {
    let seed = 1000 + i as u64;
    let messages = json!([{ "role": "user", "content": prompt }]);
    match i % 12 {
        0 => ("greedy", COMPLETIONS, json!({ "prompt": prompt, "temperature": 0 })),
        1 => ("seeded", COMPLETIONS, json!({ "prompt": prompt, "temperature": 0.9, "top_p": 0.95, "seed": seed })),
        2 => ("chat", CHAT, json!({ "messages": messages, "temperature": 0 })),
        3 => (
            "penalties, log-probabilities",
            COMPLETIONS,
            json!({ "prompt": prompt, "temperature": 1.1, "top_k": 40, "min_p": 0.02, "repetition_penalty": 1.1,
                    "presence_penalty": 0.3, "seed": seed, "logprobs": 3 }),
        ),
        4 => ("stop strings", COMPLETIONS, json!({ "prompt": prompt, "temperature": 0, "stop": [" and", ".\n"] })),
        5 => ("two samples", COMPLETIONS, json!({ "prompt": prompt, "temperature": 1.0, "n": 2, "seed": seed })),
        6 => (
            "chat, log-probabilities",
            CHAT,
            json!({ "messages": messages, "temperature": 0.7, "seed": seed, "logprobs": true, "top_logprobs": 2 }),
        ),
        7 => {
            ("no end", COMPLETIONS, json!({ "prompt": prompt, "temperature": 0, "ignore_eos": true, "min_tokens": 1 }))
        }
        8 => (
            "schema",
            CHAT,
            json!({ "messages": messages, "temperature": 0, "max_tokens": 40,
                    "response_format": { "type": "json_schema", "json_schema": { "name": "place", "schema": {
                        "type": "object", "properties": { "town": { "type": "string", "maxLength": 12 }, "snow": { "type": "boolean" } },
                        "required": ["town", "snow"], "additionalProperties": false } } } }),
        ),
        9 => (
            "call",
            CHAT,
            json!({ "messages": messages, "temperature": 0, "max_tokens": 48, "tool_choice": "required",
                    "parallel_tool_calls": false,
                    "tools": [{ "type": "function", "function": { "name": "weather", "parameters": {
                        "type": "object", "properties": { "city": { "type": "string", "maxLength": 10 } },
                        "required": ["city"], "additionalProperties": false } } }] }),
        ),
        10 => (
            "bias",
            COMPLETIONS,
            json!({ "prompt": prompt, "temperature": 0, "logit_bias": { "260": -100, "338": 3 } }),
        ),
        _ => (
            "echo",
            COMPLETIONS,
            json!({ "prompt": prompt, "temperature": 0, "echo": true, "logprobs": 1, "max_tokens": 3 }),
        ),
    }
}

impl Case {
    /// Its body, with these besides.
    pub fn bytes(&self, more: &[(&str, Value)]) -> Vec<u8> {
        let mut body = self.body.clone();
        body.extend(more.iter().map(|(key, value)| (key.to_string(), value.clone())));
        Value::Object(body).to_string().into_bytes()
    }

    /// Asks and waits for all of the answer.
    pub fn ask(&self, connection: &mut Connection, more: &[(&str, Value)]) -> io::Result<Result<Answer, Response>> {
        let response = connection.request("POST", self.path, Some(&self.bytes(more)))?;
        if response.status() != 200 {
            return Ok(Err(response));
        }
        let mut answer = Answer::default();
        answer.take(&response.json()?, "message");
        Ok(Ok(answer))
    }

    /// Asks for a stream and reads it as far as `enough`, which is asked before each event, lets.
    pub fn stream(
        &self,
        connection: &mut Connection,
        more: &[(&str, Value)],
        mut enough: impl FnMut(usize) -> bool,
    ) -> io::Result<Reading> {
        let usage = json!({ "include_usage": true });
        let all: Vec<_> = more.iter().cloned().chain([("stream", json!(true)), ("stream_options", usage)]).collect();
        connection.send("POST", self.path, Some(&self.bytes(&all)))?;
        let mut answer = Answer::default();
        if enough(0) {
            return Ok(Reading::Part(answer));
        }
        let head: Head = connection.head()?;
        if head.status != 200 {
            let mut body = Body::of(connection, &head)?;
            let mut bytes = vec![];
            while let Some(piece) = body.piece()? {
                bytes.extend(piece);
            }
            return Ok(Reading::Refused(Response { head, body: bytes }));
        }
        let mut events = Events::new(Body::of(connection, &head)?);
        for n in 1.. {
            if enough(n) {
                break;
            }
            let data = events.next()?.ok_or_else(|| io::Error::other("the stream ended before [DONE]"))?;
            if data == "[DONE]" {
                return match events.next()? {
                    None => Ok(Reading::Whole(answer)),
                    Some(more) => Err(io::Error::other(format!("after [DONE] came {more}"))),
                };
            }
            let event: Value = serde_json::from_str(&data).map_err(|e| io::Error::other(format!("{e} in {data}")))?;
            if event.get("error").is_some() {
                return Err(io::Error::other(data));
            }
            answer.take(&event, "delta");
        }
        Ok(Reading::Part(answer))
    }
}

impl Answer {
    /// Takes in a body, or an event of a stream.
    fn take(&mut self, body: &Value, part: &str) {
        for choice in body["choices"].as_array().into_iter().flatten() {
            let index = choice["index"].as_u64().unwrap_or_default() as usize;
            if self.choices.len() <= index {
                self.choices.resize(index + 1, Choice::default());
            }
            self.choices[index].take(choice, part);
        }
        if let Some(usage) = body.get("usage").filter(|usage| usage.is_object()) {
            let count = |key| usage[key].as_u64().unwrap_or(u64::MAX);
            self.tokens = (count("prompt_tokens"), count("completion_tokens"));
        }
    }

    /// Whether this is what a stream would have brought before the end of `whole`.
    pub fn begins(&self, whole: &Answer) -> bool {
        let begins = |(part, all): (&Choice, &Choice)| {
            let calls = part.calls.iter().zip(&all.calls).all(|(a, b)| a.0 == b.0 && b.1.starts_with(&a.1));
            all.text.starts_with(&part.text) && calls && part.calls.len() <= all.calls.len()
        };
        self.choices.len() <= whole.choices.len() && self.choices.iter().zip(&whole.choices).all(begins)
    }
}

impl Choice {
    fn take(&mut self, choice: &Value, part: &str) {
        let part = choice.get(part).unwrap_or(choice);
        for key in ["text", "content"] {
            self.text += part.get(key).and_then(Value::as_str).unwrap_or_default();
        }
        for (i, call) in part["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = call["index"].as_u64().map_or(i, |index| index as usize);
            if self.calls.len() <= index {
                self.calls.resize(index + 1, Default::default());
            }
            let text = |key: &str| call["function"][key].as_str().unwrap_or_default().to_owned();
            self.calls[index].0 += &text("name");
            self.calls[index].1 += &text("arguments");
        }
        append(&mut self.logprobs, &choice["logprobs"]);
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
    }
}

/// Appends lists to lists, in objects too.
fn append(to: &mut Value, more: &Value) {
    match (to, more) {
        (_, Value::Null) => {}
        (Value::Array(list), Value::Array(items)) => list.extend(items.iter().cloned()),
        (Value::Object(map), Value::Object(fields)) => {
            fields.iter().for_each(|(key, value)| append(map.entry(key.clone()).or_insert(Value::Null), value));
        }
        (to, more) => *to = more.clone(),
    }
}
