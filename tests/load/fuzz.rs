//! Bodies that are almost right: valid ones in which something was changed, as JSON or as bytes. Each must be answered, with
//! success or with an error of the caller's, and the server goes on.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tegula_tests::figure::Figure;

use crate::http::{Connection, Response};
use crate::random::Random;
use crate::server::{PATIENCE, Server};
use crate::{Options, Outcome};

const CLIENTS: usize = 8;

pub fn run(server: &mut Server, options: &Options) -> Outcome<Vec<Figure>> {
    let (began, next, accepted) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = None;
                loop {
                    let i = next.fetch_add(1, Relaxed);
                    if i >= options.fuzz || wrong.lock().is_ok_and(|wrong| wrong.len() >= 20) {
                        break;
                    }
                    let (path, body) = body(options.seed.wrapping_add(i as u64));
                    match ask(server, &mut connection, path, &body) {
                        Ok(true) => drop(accepted.fetch_add(1, Relaxed)),
                        Ok(false) => {}
                        Err(why) => {
                            let shown: String = String::from_utf8_lossy(&body).chars().take(600).collect();
                            let detail = format!("body {i} to {path}: {why}\n    {shown}");
                            wrong.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(detail);
                        }
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    wrong.iter().for_each(|detail| println!("  WRONG {detail}"));
    server.is_well()?;
    server.idle(Duration::from_secs(20))?;
    let (bodies, accepted) = (next.into_inner().min(options.fuzz), accepted.into_inner());
    println!("  fuzz: {bodies} bodies in {:.0} s, {accepted} of them accepted", began.elapsed().as_secs_f64());
    if accepted * 50 < bodies || accepted * 10 > bodies * 9 {
        return Err("the bodies are not what they should be: almost all of one kind".into());
    }
    Ok(vec![
        Figure::new("fuzz: bodies", bodies as f64, ""),
        Figure::new("fuzz: answers that are neither success nor a caller's error", wrong.len() as f64, "").at_most(0.0),
    ])
}

/// Whether the body was accepted; an error if the answer is none that may be.
fn ask(server: &Server, connection: &mut Option<Connection>, path: &str, body: &[u8]) -> Result<bool, String> {
    let mut used = match connection.take() {
        Some(used) => used,
        None => Connection::open(server.address, PATIENCE).map_err(|e| format!("no connection: {e}"))?,
    };
    let mut response = used.request("POST", path, Some(body));
    // One that was closed after the last answer.
    if response.as_ref().is_err_and(|e| matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)) {
        used = Connection::open(server.address, PATIENCE).map_err(|e| format!("no connection: {e}"))?;
        response = used.request("POST", path, Some(body));
    }
    let response = response.map_err(|e| format!("no answer: {e}"))?;
    let accepted = judge(&response)?;
    if response.head.header("connection") != Some("close") {
        *connection = Some(used);
    }
    Ok(accepted)
}

fn judge(response: &Response) -> Result<bool, String> {
    let shown = || format!("{} {:.400}", response.status(), response.text());
    let has_error = |body: &Value| body["error"]["message"].as_str().is_some_and(|message| !message.is_empty());
    let stream = response.head.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    match response.status() {
        200 if stream => {
            let text = response.text();
            let is_json = |line: &&str| serde_json::from_str::<Value>(line).is_ok();
            let (mut events, mut last) = (0, "");
            for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
                if last == "[DONE]" || data != "[DONE]" && !is_json(&data) {
                    return Err(shown());
                }
                (events, last) = (events + 1, data);
            }
            if last == "[DONE]" && events > 1 { Ok(true) } else { Err(shown()) }
        }
        200 => response
            .json()
            .map(|body| !has_error(&body))
            .map_err(|e| e.to_string())
            .and_then(|ok| if ok { Ok(true) } else { Err(shown()) }),
        400..500 => match response.json() {
            Ok(body) if has_error(&body) => Ok(false),
            _ => Err(shown()),
        },
        _ => Err(shown()),
    }
}

/// The path and body of a number.
fn body(seed: u64) -> (&'static str, Vec<u8>) {
    let mut random = Random(seed);
    let (path, mut body) = valid(&mut random);
    for _ in 0..[0, 1, 1, 1, 2, 3][random.below(6)] {
        change(&mut body, &mut random);
    }
    let mut bytes = body.to_string().into_bytes();
    if random.once_in(6) {
        spoil(&mut bytes, &mut random);
    }
    (path, bytes)
}

/// A body that is right, of short answers to short prompts.
fn valid(random: &mut Random) -> (&'static str, Value) {
    let max_tokens = 1 + random.below(2);
    let prompts = [json!("Once"), json!("a b"), json!([5, 6]), json!(["a", "b"]), json!([[1, 2], [3]]), json!("é😀")];
    let prompt = random.choose(&prompts).clone();
    // Some of the fields that may be there; those that only make sense together come together.
    let all = |mut body: Value, optional: Value, random: &mut Random| {
        for (key, value) in optional.as_object().into_iter().flatten() {
            let goes = ["stream_options", "top_logprobs"].contains(&key.as_str());
            if !goes && random.once_in(3) {
                body[key] = value.clone();
            }
        }
        for (with, key) in [("stream", "stream_options"), ("logprobs", "top_logprobs")] {
            if let (true, Some(value)) = (body[with] == true && random.once_in(2), optional.get(key)) {
                body[key] = value.clone();
            }
        }
        body
    };
    let sampling = json!({
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 4, "presence_penalty": 0.5, "frequency_penalty": -0.5,
        "repetition_penalty": 1.2, "logit_bias": { "17": 2.5 }, "stop": ["x", "yz"], "stop_token_ids": [3], "n": 2,
        "stream": true, "stream_options": { "include_usage": true }, "min_tokens": 1, "ignore_eos": true, "priority": 1,
        "skip_special_tokens": false, "include_stop_str_in_output": true, "allowed_token_ids": [5, 6, 7], "user": "u",
        "cache_salt": "s", "bad_words": ["the"], "truncate_prompt_tokens": 8, "return_token_ids": true,
    });
    let forms = [
        json!({ "regex": "[ab]+" }),
        json!({ "choice": ["yes", "no"] }),
        json!({ "grammar": "start: \"(\" start? \")\"" }),
        json!({ "json": { "type": "object", "properties": { "a": { "enum": [1, "b"] } } } }),
    ];
    let form = random.choose(&forms).clone();
    match random.below(10) {
        0..4 => {
            let optional = json!({ "logprobs": 2, "echo": true, "suffix": null, "model": "smollm2", "add_special_tokens": true,
                "structured_outputs": form, "prompt_logprobs": 1 });
            let body = all(json!({ "prompt": prompt, "max_tokens": max_tokens }), sampling, random);
            ("/v1/completions", all(body, optional, random))
        }
        4..8 => {
            let messages = [
                json!([{ "role": "user", "content": "Hi" }]),
                json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": [{ "type": "text", "text": "a" }] }]),
                json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
                    { "role": "tool", "tool_call_id": "c", "content": "3" }]),
            ];
            let optional = json!({ "logprobs": true, "top_logprobs": 2, "response_format": { "type": "json_object" },
                "tools": [{ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } }],
                "tool_choice": "auto", "parallel_tool_calls": false, "add_generation_prompt": true, "model": "smollm2",
                "continue_final_message": false, "reasoning_effort": "low", "chat_template_kwargs": { "a": 1 } });
            let body = json!({ "messages": random.choose(&messages), "max_tokens": max_tokens });
            ("/v1/chat/completions", all(all(body, sampling, random), optional, random))
        }
        8 => match random.below(2) {
            0 => (
                "/tokenize",
                all(
                    json!({ "prompt": "a b" }),
                    json!({ "add_special_tokens": false, "return_token_strs": true }),
                    random,
                ),
            ),
            _ => ("/detokenize", json!({ "tokens": [1, 2, 300] })),
        },
        _ => {
            let params = json!({ "max_tokens": max_tokens, "temperature": 0.0 });
            ("/inference/v1/generate", json!({ "token_ids": [1, 2, 3], "sampling_params": params, "stream": false }))
        }
    }
}

/// Changes one place of a body.
fn change(body: &mut Value, random: &mut Random) {
    // Walks down to some place.
    let mut at = body;
    for _ in 0..random.below(5) {
        let n = match &*at {
            Value::Object(map) => map.len(),
            Value::Array(items) => items.len(),
            _ => 0,
        };
        if n == 0 {
            break;
        }
        let i = random.below(n);
        at = match at {
            // What bounds the work stays.
            Value::Object(map) if map.keys().nth(i).is_some_and(|key| key == "max_tokens") && !random.once_in(8) => {
                break;
            }
            Value::Object(map) => match map.values_mut().nth(i) {
                Some(value) => value,
                None => return,
            },
            Value::Array(items) => &mut items[i],
            _ => return,
        };
    }
    match (at, random.below(5)) {
        (Value::Object(map), 0) if !map.is_empty() => {
            let key = map.keys().nth(random.below(map.len())).cloned().unwrap_or_default();
            map.remove(&key);
        }
        (Value::Object(map), 1) => {
            map.insert(random.choose(NAMES).to_string(), strange(random, 2));
        }
        (Value::Object(map), 2) if map.len() > 1 => {
            // One field's value at another.
            let from = map.values().nth(random.below(map.len())).cloned().unwrap_or_default();
            let i = random.below(map.len());
            map.values_mut().nth(i).into_iter().for_each(|to| *to = from.clone());
        }
        (Value::Array(items), 0 | 1) => {
            let i = random.below(items.len() + 1);
            items.insert(i, strange(random, 2));
        }
        (Value::Array(items), 2) => items.clear(),
        (value, _) => *value = strange(random, 3),
    }
}

const NAMES: &[&str] = &[
    "prompt",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "n",
    "stop",
    "tools",
    "tool_choice",
    "role",
    "content",
    "logprobs",
    "guided_json",
    "guided_regex",
    "structured_outputs",
    "response_format",
    "prompt_logprobs",
    "echo",
    "best_of",
    "use_beam_search",
    "suffix",
    "chat_template",
    "model",
    "stream",
    "unknown",
    "",
    "\u{0}",
    "__proto__",
    "é",
];

/// A value that is probably wrong where it goes.
fn strange(random: &mut Random, depth: usize) -> Value {
    let deeper = depth.saturating_sub(1);
    match random.below(if depth == 0 { 14 } else { 17 }) {
        0 => Value::Null,
        1 => json!(random.once_in(2)),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(1),
        5 => json!(2.5),
        6 => json!(u64::MAX),
        7 => json!(i64::MIN),
        8 => json!(1e308),
        9 => json!(-1e-300),
        10 => json!(""),
        11 => json!(*random.choose(&[
            "\u{0}",
            "\u{fffd}",
            "<|im_end|>",
            "<tool_call>",
            "NaN",
            "auto",
            "é\u{301}😀",
            "../../x",
            "a(",
            "{",
            "json_schema"
        ])),
        12 => json!("long ".repeat(1 + random.below(400))),
        13 => json!(random.below(60_000)),
        14 => Value::Array((0..random.below(4)).map(|_| strange(random, deeper)).collect()),
        15 => {
            let fields = (0..random.below(3)).map(|_| (random.choose(NAMES).to_string(), strange(random, deeper)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
        _ => {
            let mut nested = json!(1);
            for _ in 0..random.below(120) {
                nested = if random.once_in(2) { json!([nested]) } else { json!({ "a": nested }) };
            }
            nested
        }
    }
}

/// Makes it something that is perhaps no JSON.
fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.extend_from_within(..at),
        2 => bytes.insert(at, random.next() as u8),
        3 => bytes.splice(at..at, *b"\\ud800").for_each(drop),
        4 => bytes.splice(at..at, *b"1e999").for_each(drop),
        5 => bytes.splice(at..at, *b"\xff\xfe\x00").for_each(drop),
        6 if at < bytes.len() => bytes[at] = random.next() as u8,
        _ => bytes.splice(at..at, b"[".repeat(random.below(300))).for_each(drop),
    }
}
