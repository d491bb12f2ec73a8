//! Rows that need a real model: SmolLM2's first layers.

use serde_json::{Value, json};

use super::answers::{COMPLETIONS, Reply, ask, both, completion, message, streamed, with};
use super::client::Client;
use super::server::Server;
use super::smollm2;

const STORY: &str =
    "Once upon a time there was a small village by the sea, and in it lived an old fisherman who told stories";

/// The model's tokens that end answers.
const ENDS: [u32; 2] = [0, 2];

/// A prompt of hundreds of tokens.
fn long_story() -> String {
    (0..30).map(|i| format!("{i}. {STORY}, and then another one. ")).collect()
}

/// Identifiers and log-probabilities of a greedy answer.
fn tokens_of(client: &Client, prompt: &str, more: Value) -> (Vec<u32>, Value) {
    let fields = with(json!({ "max_tokens": 12, "logprobs": 5, "return_token_ids": true, "ignore_eos": true }), more);
    let answer = client.post(COMPLETIONS, &completion(prompt, fields)).ok();
    let choice = &answer["choices"][0];
    let ids = serde_json::from_value(choice["token_ids"].clone()).unwrap_or_else(|e| panic!("{e}: {answer}"));
    (ids, choice["logprobs"].clone())
}

#[test]
pub fn t08_no_end_before_there_are_enough_tokens() {
    let Some(server) = smollm2::server() else { return };
    // It wants nothing but to end: one of its own ends, the other, and a token that was asked to end it.
    for end in [ENDS[0], ENDS[1], 28] {
        let wants = json!({ "logit_bias": { end.to_string(): 100 }, "stop_token_ids": [28], "max_tokens": 12, "return_token_ids": true });
        let ask_for = |more| server.client.post(COMPLETIONS, &completion(STORY, with(wants.clone(), more))).ok();
        let at_once = ask_for(json!({}));
        assert_eq!(
            (&at_once["usage"]["completion_tokens"], &at_once["choices"][0]["finish_reason"]),
            (&json!(1), &json!("stop"))
        );
        let later = ask_for(json!({ "min_tokens": 5 }));
        let ids: Vec<u32> = serde_json::from_value(later["choices"][0]["token_ids"].clone()).expect("ids");
        assert_eq!(later["choices"][0]["finish_reason"], "stop");
        assert!((5..=6).contains(&ids.len()), "{ids:?}");
        assert!(ids[..4].iter().all(|id| ![ENDS[0], ENDS[1], 28].contains(id)), "{ids:?}");
    }
}

#[test]
pub fn t18_without_temperature_the_best_token() {
    let Some(server) = smollm2::server() else { return };
    let plain = tokens_of(&server.client, STORY, json!({}));
    for more in [
        json!({ "top_p": 0.1, "top_k": 5, "seed": 7 }),
        json!({ "top_k": 1, "temperature": 1.5, "seed": 8 }),
        json!({ "min_p": 1.0, "seed": 9 }),
        json!({ "top_p": 1e-6, "temperature": 1, "seed": 10 }),
        json!({ "typical_p": 0.2, "seed": 11 }),
    ] {
        assert_eq!(tokens_of(&server.client, STORY, more.clone()), plain, "{more}");
    }
    let best = plain.0[0];
    let banned = tokens_of(&server.client, STORY, json!({ "logit_bias": { best.to_string(): -100 } }));
    assert_ne!(banned.0[0], best);
}

#[test]
pub fn t18_of_equals_the_lowest() {
    let Some(server) = smollm2::server() else { return };
    let (ids, _) = tokens_of(&server.client, STORY, json!({}));
    let best = ids[0];
    // A token before it that has its weights, and so its logit, is taken in its place; one behind it is not.
    for (twin, expected) in [(best - 1, best - 1), (best + 1, best)] {
        let server = smollm2::with_twins(best, twin).expect("the model is here");
        let (ids, logprobs) = tokens_of(&server.client, STORY, json!({}));
        assert_eq!(ids[0], expected);
        assert!(logprobs["token_logprobs"][0].is_number());
    }
}

#[test]
pub fn t19_alone_and_with_others_and_in_parts() {
    let Some(server) = smollm2::server() else { return };
    let prompt = format!("{STORY}. {STORY}. {STORY}, until");
    let alone = tokens_of(&server.client, &prompt, json!({}));
    assert_eq!(tokens_of(&server.client, &prompt, json!({})), alone, "after a hit in the cache");
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..7)
            .map(|i| {
                let client = &server.client;
                scope.spawn(move || {
                    let other = completion(
                        format!("{i} {}", STORY.repeat(1 + i % 3)),
                        json!({ "max_tokens": 8 + i, "temperature": 1, "seed": i, "ignore_eos": true }),
                    );
                    streamed(client, &other)
                })
            })
            .collect();
        for _ in 0..3 {
            let salted = json!({ "cache_salt": "not from the cache" });
            assert_eq!(tokens_of(&server.client, &prompt, salted), alone, "in a batch");
        }
        others.into_iter().for_each(|thread| drop(thread.join().expect("served")));
    });
    for part in [16, 64] {
        let parts = smollm2::with(|e| e.max_num_seqs(8).max_num_batched_tokens(part)).expect("the model is here");
        assert_eq!(tokens_of(&parts.client, &prompt, json!({})), alone, "in parts of {part}");
    }
}

#[test]
pub fn t20_answers_of_several_seeds_from_a_model() {
    let Some(server) = smollm2::server() else { return };
    let body = |more| completion(STORY, with(json!({ "temperature": 1, "max_tokens": 10, "ignore_eos": true }), more));
    let three = both(&server.client, &body(json!({ "n": 3, "seed": 1 })));
    for (seed, choice) in (1..).zip(&three.choices) {
        assert_eq!(ask(&server.client, &body(json!({ "seed": seed }))).choices[0], *choice);
    }
    assert_ne!(three.choices[0], three.choices[1]);
}

#[test]
pub fn t24_log_probabilities_of_what_cannot_be() {
    let Some(server) = smollm2::server() else { return };
    let forms = [
        json!({ "top_k": 1, "temperature": 1 }),
        json!({ "structured_outputs": { "choice": ["yes", "no"] } }),
        json!({ "response_format": { "type": "json_object" } }),
        json!({ "allowed_token_ids": [65, 66, 67] }),
        json!({ "logit_bias": { "65": -100, "66": 100 } }),
        json!({ "min_p": 1.0, "temperature": 1 }),
        json!({ "top_p": 0.01, "temperature": 1, "repetition_penalty": 1.3 }),
        json!({ "bad_words": ["the", " the"], "presence_penalty": 2 }),
    ];
    let plain = ask(&server.client, &completion(STORY, json!({ "logprobs": 5, "max_tokens": 1 })));
    for form in forms {
        let fields = with(json!({ "logprobs": 5, "max_tokens": 6 }), form.clone());
        let reply = both(&server.client, &completion(STORY, fields));
        let logprobs = &reply.choices[0].logprobs;
        finite(logprobs);
        // They are the model's own, before all rules: those of the first token do not depend on them.
        let (own, expected) = (&logprobs["top_logprobs"][0], &plain.choices[0].logprobs["top_logprobs"][0]);
        for (token, value) in expected.as_object().expect("tokens and numbers") {
            assert_eq!(&own[token], value, "{form}: {token:?}");
        }
        let chat =
            message("Say something.", with(json!({ "logprobs": true, "top_logprobs": 5, "max_tokens": 4 }), form));
        finite(&both(&server.client, &chat).choices[0].logprobs);
    }
}

/// Every number is one that a log-probability may be.
fn finite(value: &Value) {
    match value {
        Value::Array(all) => all.iter().for_each(finite),
        Value::Object(all) => {
            for (name, value) in all {
                if name == "bytes" || name == "text_offset" {
                    continue;
                }
                finite(value);
            }
        }
        Value::Number(n) => assert!((-9999.0..=0.0).contains(&n.as_f64().expect("a number")), "{n}"),
        _ => {}
    }
}

#[test]
pub fn t25_log_probabilities_of_a_prompt_by_a_model() {
    let Some(server) = smollm2::server() else { return };
    let body = completion(STORY.repeat(4), json!({ "prompt_logprobs": 2, "max_tokens": 2 }));
    let answers: Vec<Value> = (0..2).map(|_| server.client.post(COMPLETIONS, &body).ok()).collect();
    let logprobs = |answer: &Value| answer["choices"][0]["prompt_logprobs"].clone();
    assert_eq!(logprobs(&answers[0]), logprobs(&answers[1]));
    let count = answers[0]["usage"]["prompt_tokens"].as_u64().expect("a count");
    assert_eq!(logprobs(&answers[0]).as_array().map(|all| all.len() as u64), Some(count));
    assert!(logprobs(&answers[0])[0].is_null());
}

#[test]
pub fn t26_log_probabilities_of_a_long_prompt_in_parts() {
    let Some(whole) = smollm2::with(|e| e.max_num_batched_tokens(2048)) else { return };
    let parts = smollm2::with(|e| e.max_num_seqs(8).max_num_batched_tokens(100)).expect("the model is here");
    let body = completion(long_story(), json!({ "prompt_logprobs": 10, "max_tokens": 3, "logprobs": 3 }));
    let answer = |server: &Server| server.client.post(COMPLETIONS, &body).ok();
    let (a, b) = (answer(&whole), answer(&parts));
    assert!(a["usage"]["prompt_tokens"].as_u64() > Some(600), "{}", a["usage"]);
    assert_eq!(a["choices"], b["choices"]);
    // Each has its own token, and the ten best.
    let entries = a["choices"][0]["prompt_logprobs"].as_array().expect("a list");
    assert!(entries[1..].iter().all(|e| (10..=11).contains(&e.as_object().expect("an object").len())));
}

#[test]
pub fn t29_a_models_cache_changes_no_answer() {
    let Some(on) = smollm2::server() else { return };
    let off = smollm2::with(|e| e.prefix_cache(false)).expect("the model is here");
    let p: String = long_story().chars().take(900).collect();
    let changed = p.replacen("fisherman", "carpenter", 1);
    let mut hits = 0;
    for prompt in [&p, &p, &format!("{p} x"), &changed, &p[..500].to_owned(), &p] {
        assert_eq!(tokens_of(&on.client, prompt, json!({})), tokens_of(&off.client, prompt, json!({})));
        hits += ask(&on.client, &completion(prompt.as_str(), json!({ "max_tokens": 1 }))).cached();
        assert_eq!(ask(&off.client, &completion(prompt.as_str(), json!({ "max_tokens": 1 }))).cached(), 0);
    }
    assert!(hits > 0);
}

#[test]
pub fn t30_a_models_preempted_answers_are_the_same() {
    let Some(wide) = smollm2::server() else { return };
    // Room for about four blocks of 64: two answers of more than two blocks each do not fit.
    let tight = smollm2::with_room(256).expect("the model is here");
    let body = |i: usize| {
        completion(
            format!("{i} {STORY} {STORY}"),
            json!({ "max_tokens": 110, "ignore_eos": true, "temperature": 0.8, "seed": i }),
        )
    };
    let alone: Vec<Reply> = (0..3).map(|i| ask(&wide.client, &body(i))).collect();
    std::thread::scope(|scope| {
        let tight = &tight;
        let asked: Vec<_> = (0..3).map(|i| scope.spawn(move || streamed(&tight.client, &body(i)))).collect();
        for (thread, expected) in asked.into_iter().zip(&alone) {
            assert_eq!(thread.join().expect("served").choices, expected.choices);
        }
    });
    assert!(tight.metric("vllm:num_preemptions_total", &[]) > 0.0);
}

#[test]
pub fn every_endpoint_with_a_model() {
    let Some(server) = smollm2::server() else { return };
    let client = &server.client;
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.get("/ready").status, 200);
    let models = client.get_json("/v1/models");
    let model = models["data"][0]["id"].as_str().expect("a model").to_owned();
    assert!(client.get_json("/version")["version"].is_string());
    let info = client.get_json("/server_info");
    assert!(info.to_string().contains("llama"), "{info}");
    let tokens = client.post("/tokenize", &json!({ "model": model, "prompt": "Hello there" })).ok()["tokens"].clone();
    assert_eq!(client.post("/detokenize", &json!({ "model": model, "tokens": tokens })).ok()["prompt"], "Hello there");
    let reply = both(client, &message("Hello", json!({ "model": model, "max_tokens": 5 })));
    assert!(reply.usage("completion_tokens") <= 5);
    let text = both(client, &completion("Hello there", json!({ "model": model, "max_tokens": 5, "ignore_eos": true })));
    let by_ids = client
        .post(
            "/inference/v1/generate",
            &json!({ "model": model, "token_ids": tokens,
        "sampling_params": { "temperature": 0, "max_tokens": 5, "ignore_eos": true } }),
        )
        .ok();
    let ids = by_ids["choices"][0]["token_ids"].clone();
    assert_eq!(client.post("/detokenize", &json!({ "tokens": ids })).ok()["prompt"], text.text());
    client.post(COMPLETIONS, &completion("p", json!({ "model": "another" }))).error(404);
}
