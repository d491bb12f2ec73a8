//! Requests in which something is odd: each is answered or refused as it should be, and the next one is served.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tegula_engine::engine::Scripted;

use super::super::answers::{CHAT, COMPLETIONS, ask};
use super::super::client::ApiError;
use super::super::server::Server;
use super::super::vocabulary::{CHATML, VOCAB};

const GENERATE: &str = "/inference/v1/generate";

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::with(Scripted::new(VOCAB, 16, 512, 1024), true, CHATML, |engine| engine))
}

/// Requests with every parameter in them.
fn whole() -> Vec<(&'static str, Value)> {
    let sampling = json!({
        "n": 2, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01, "typical_p": 0.9, "repetition_penalty": 1.1,
        "presence_penalty": 0.1, "frequency_penalty": 0.1, "logit_bias": { "5": 1 }, "bad_words": ["x"],
        "allowed_token_ids": [97, 98, 99], "min_tokens": 1, "max_tokens": 5, "stop": ["a", "b"], "stop_token_ids": [98],
        "include_stop_str_in_output": true, "ignore_eos": true, "seed": 5, "prompt_logprobs": 1, "skip_special_tokens": false,
        "truncate_prompt_tokens": 5, "structured_outputs": { "regex": "[a-c]*" }, "use_beam_search": false,
    });
    let around = json!({
        "model": "test-model", "stream": true, "stream_options": { "include_usage": true, "continuous_usage_stats": true },
        "request_id": "r", "priority": 1, "cache_salt": "s", "return_token_ids": true, "return_tokens_as_token_ids": true,
    });
    let joined = |parts: &[&Value]| {
        let all = parts.iter().flat_map(|part| part.as_object().expect("an object").clone());
        Value::Object(all.collect())
    };
    let completion =
        json!({ "prompt": ["ab", "c"], "echo": true, "logprobs": 2, "add_special_tokens": true, "suffix": null });
    let tool = json!({ "type": "function", "function": { "name": "f", "parameters": { "type": "object" } } });
    let chat = json!({
        "messages": [
            { "role": "system", "content": "s" }, { "role": "user", "content": [{ "type": "text", "text": "u" }] },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "1", "content": "t" }, { "role": "user", "content": "v" },
        ],
        "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 4, "tools": [tool], "tool_choice": "auto",
        "parallel_tool_calls": false, "add_generation_prompt": true, "continue_final_message": false, "add_special_tokens": false,
        "chat_template_kwargs": { "k": 1 }, "response_format": { "type": "text" },
    });
    let generate = json!({ "token_ids": [97, 98], "sampling_params": sampling });
    vec![
        (COMPLETIONS, joined(&[&sampling, &around, &completion])),
        (CHAT, joined(&[&sampling, &around, &chat])),
        (GENERATE, joined(&[&around, &generate])),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..300i64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        (-2.0..2.0f64).prop_map(Value::from),
        "[a-z\"\\\\é\u{1f600}(\\[{*]{0,5}".prop_map(Value::from),
        Just(json!("")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let key =
            prop_oneof!["[a-z0-9]{0,3}", Just("type".to_owned()), Just("json".to_owned()), Just("content".to_owned())];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4).prop_map(|all| Value::Object(Map::from_iter(all))),
        ]
    })
}

/// All places of a value: the value itself first.
fn places(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().enumerate().for_each(|(i, item)| places(item, format!("{at}/{i}"), out)),
        Value::Object(map) => map.iter().for_each(|(key, item)| places(item, format!("{at}/{key}"), out)),
        _ => {}
    }
    out.push(at);
}

/// One of the requests with some of it left out, and something else in up to two places.
fn odd() -> impl Strategy<Value = (&'static str, Value)> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any_json()), 0..3);
    (0..3usize, prop::collection::vec(any::<prop::sample::Index>(), 0..30), changes).prop_map(
        |(which, out, changes)| {
            let (path, mut body) = whole().swap_remove(which);
            for index in out {
                let map = body.as_object_mut().expect("an object");
                let key = map.keys().nth(index.index(map.len())).cloned().unwrap_or_default();
                if !["prompt", "messages", "token_ids"].contains(&&*key) {
                    map.shift_remove(&key);
                }
            }
            for (index, value) in changes {
                let mut all = vec![];
                places(&body, String::new(), &mut all);
                // The last is the body itself, which stays an object.
                let place = &all[index.index(all.len() - 1)];
                *body.pointer_mut(place).expect("a place that is there") = value;
            }
            (path, body)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_odd_is_answered_or_refused((path, body) in odd()) {
        let server = server();
        let answer = server.client.post(path, &body);
        if answer.status == 200 {
            let text = answer.text();
            match answer.header("content-type") {
                Some("text/event-stream") => {
                    prop_assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\""), "{}: {}", body, text);
                }
                _ => prop_assert!(answer.json()["choices"].is_array()),
            }
        } else {
            prop_assert!([400, 404].contains(&answer.status), "{}: {} {}", body, answer.status, answer.text());
            let error = ApiError::read(&answer.json()["error"]).expect("an error");
            prop_assert!(error.message.len() < 2000, "{}", error.message);
        }
    }
}

/// The requests themselves are fine but for what excludes each other, or nothing above would be.
#[test]
fn what_is_not_odd_is_answered() {
    let server = server();
    for (path, body) in whole() {
        let answer = server.client.post(path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("x-ignored-parameters"), None);
    }
    assert_eq!(ask(&server.client, &json!({ "prompt": "x", "max_tokens": 3 })).usage("completion_tokens"), 3);
}
