//! What a request says of itself: names, salts, priorities, parameters that are not supported.

use serde_json::{Value, json};
use tegula_server::ServerConfig;

use super::super::answers::{CHAT, COMPLETIONS, ask, both, completion, message, with};
use super::super::server::{Server, scripted};
use super::super::vocabulary::bytes;
use super::says;

#[test]
fn a_request_has_a_name() {
    let server = says("ok");
    let named = server.client.with("x-request-id", "abc-1");
    let answer = named.post(COMPLETIONS, &completion("p", json!({ "request_id": "other" })));
    assert_eq!((answer.header("x-request-id"), &answer.ok()["id"]), (Some("abc-1"), &json!("cmpl-abc-1")));
    let answer = server.client.post(CHAT, &message("p", json!({ "request_id": "mine" })));
    assert_eq!((answer.header("x-request-id"), &answer.ok()["id"]), (Some("mine"), &json!("chatcmpl-mine")));
    // A stream's chunks have it too.
    let events = named.stream(CHAT, &message("p", json!({}))).rest();
    assert!(events.iter().all(|event| event["id"] == "chatcmpl-abc-1"));
    // And an error: of the body, of a parameter, of the name itself.
    for (body, header) in [("{", Some("abc-1")), ("{\"prompt\": 5}", Some("abc-1"))] {
        let answer = named.send("POST", COMPLETIONS, body.as_bytes());
        assert_eq!((answer.status, answer.header("x-request-id")), (400, header));
    }
    let answer = server.client.post(COMPLETIONS, &json!({ "prompt": 5, "request_id": "mine" }));
    assert_eq!((answer.status, answer.header("x-request-id")), (400, Some("mine")));
    let answer = server.client.with("x-request-id", &"x".repeat(257)).post(COMPLETIONS, &completion("p", json!({})));
    assert_eq!((answer.refuses("x-request-id").status, answer.header("x-request-id")), (400, None));
    // An empty header says nothing.
    let answer = server.client.with("x-request-id", "").post(COMPLETIONS, &completion("p", json!({})));
    let own = answer.header("x-request-id").expect("a name");
    assert_eq!((own.len(), &answer.ok()["id"]), (32, &json!(format!("cmpl-{own}"))));
    // Without one, nobody else's.
    let ids: Vec<Value> =
        (0..50).map(|_| server.client.post(COMPLETIONS, &completion("p", json!({}))).ok()["id"].clone()).collect();
    assert!(ids.iter().enumerate().all(|(i, id)| !ids[..i].contains(id)), "{ids:?}");
    for bad in [json!(""), json!("a\nb"), json!("x".repeat(257)), json!(5)] {
        server.client.post(COMPLETIONS, &completion("p", json!({ "request_id": bad }))).refuses("request_id");
    }
}

#[test]
fn the_same_name_twice_is_no_matter() {
    let server = Server::start(scripted().answers(&bytes("ok")).step_time(std::time::Duration::from_millis(2)));
    let body = completion(json!(["p", "q"]), json!({ "request_id": "same" }));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(&server.client, &body))).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().expect("an answer").text(), "ok"));
    });
}

#[test]
fn salts_part_what_is_cached() {
    let server = says("ok");
    let prompt = "a prompt that is longer than two blocks of sixteen tokens are";
    let cached = |salt: Value| ask(&server.client, &completion(prompt, json!({ "cache_salt": salt }))).cached();
    let whole = cached(json!("mine"));
    assert_eq!(whole, 0);
    assert!(cached(json!("mine")) >= 32);
    assert_eq!(cached(json!("theirs")), 0);
    assert_eq!(cached(Value::Null), 0);
    assert!(cached(Value::Null) >= 32);
    let usage = &server.client.post(CHAT, &message(prompt, json!({}))).ok()["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn models_that_are_not_here() {
    let server = says("ok");
    for (path, body) in [(COMPLETIONS, completion("p", json!({}))), (CHAT, message("p", json!({})))] {
        let error = server.client.post(path, &with(body.clone(), json!({ "model": "gpt-9" }))).error(404);
        assert_eq!((error.kind.as_str(), error.param.as_deref()), ("NotFoundError", Some("model")));
        assert!(
            error.message.contains("`gpt-9` does not exist") && error.message.contains("test-model"),
            "{}",
            error.message
        );
        let answer = server.client.post(path, &with(body, json!({ "model": "test-model" }))).ok();
        assert_eq!(answer["model"], "test-model");
    }
}

#[test]
fn what_is_known_and_not_supported_is_refused_by_name() {
    let server = says("ok");
    for (name, values, neutral) in [
        ("use_beam_search", vec![json!(true), json!("no")], json!(false)),
        ("best_of", vec![json!(2), json!("1")], json!(1)),
        ("length_penalty", vec![json!(0.5)], json!(1.0)),
        ("suffix", vec![json!("x"), json!(5)], json!("")),
        ("documents", vec![json!([{ "text": "x" }])], json!([])),
        ("chat_template", vec![json!("x")], Value::Null),
        ("functions", vec![json!([{ "name": "f" }])], json!([])),
        ("modalities", vec![json!(["text", "audio"])], json!(["text"])),
        ("audio", vec![json!({ "voice": "x" })], Value::Null),
        ("thinking_token_budget", vec![json!(5)], Value::Null),
        ("kv_transfer_params", vec![json!({ "a": 1 })], json!({})),
        ("logits_processors", vec![json!(["x"])], json!([])),
    ] {
        for body in [completion("p", json!({})), message("p", json!({}))] {
            let path = super::super::answers::endpoint(&body);
            let field = |value: &Value| Value::Object([(name.to_owned(), value.clone())].into_iter().collect());
            for value in &values {
                let error = server.client.post(path, &with(body.clone(), field(value))).refuses(name);
                assert!(error.message.contains("not supported"), "{}", error.message);
            }
            for value in [&neutral, &Value::Null] {
                let answer = server.client.post(path, &with(body.clone(), field(value)));
                assert_eq!((answer.status, answer.header("x-ignored-parameters")), (200, None), "{name}");
            }
        }
    }
}

#[test]
fn what_is_unknown_is_told_or_refused() {
    let server = says("ok");
    let odd = json!({ "reasoning_effort": "low", "user": "me", "stream": true, "stream_options": { "speed": 2 } });
    for body in [completion("p", odd.clone()), message("p", odd)] {
        let path = super::super::answers::endpoint(&body);
        let told = server.client.post(path, &body).header("x-ignored-parameters").map(str::to_owned);
        let mut names: Vec<&str> = told.as_deref().unwrap_or_default().split(',').collect();
        names.sort_unstable();
        assert_eq!(names, ["reasoning_effort", "stream_options.speed", "user"]);
    }
    let strict = ServerConfig { strict_parameters: true, ..ServerConfig::default() };
    let server = Server::configured(scripted().answers(&bytes("ok")), strict);
    server.client.post(COMPLETIONS, &completion("p", json!({ "colour": 1 }))).refuses("colour");
    assert_eq!(server.engine.stats().num_steps, 0, "it was refused before the engine saw it");
    assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok");
}

#[test]
fn prompts_are_shortened_from_their_beginning() {
    let server = says("ok");
    let ids = |more: Value| {
        let body = completion("abcdefgh", with(json!({ "return_token_ids": true, "max_tokens": 2 }), more));
        server.client.post(COMPLETIONS, &body).ok()["choices"][0]["prompt_token_ids"].clone()
    };
    assert_eq!(ids(json!({ "truncate_prompt_tokens": 3 })), json!(bytes("fgh")));
    assert_eq!(ids(json!({ "truncate_prompt_tokens": 9 })), json!(bytes("abcdefgh")));
    assert_eq!(ids(json!({ "truncate_prompt_tokens": -1 })), json!(bytes("abcdefgh")));
    let long = "x".repeat(700);
    let fits = completion(long.as_str(), json!({ "truncate_prompt_tokens": -1, "max_tokens": 12, "ignore_eos": true }));
    let reply = ask(&server.client, &fits);
    assert_eq!((reply.usage("prompt_tokens"), reply.usage("total_tokens")), (500, 512));
    let echo = completion("abcdefgh", json!({ "truncate_prompt_tokens": 3, "echo": true, "max_tokens": 2 }));
    assert_eq!(ask(&server.client, &echo).text(), "fghok");
    let chat = message("p", json!({ "truncate_prompt_tokens": 4 }));
    assert_eq!(ask(&server.client, &chat).usage("prompt_tokens"), 4);
}

#[test]
fn a_full_context_is_told_with_both_numbers() {
    let server = says("ok");
    for (body, param) in [
        (completion("x".repeat(500), json!({ "max_tokens": 13 })), "max_tokens"),
        (message(&"x".repeat(450), json!({ "max_tokens": 60 })), "max_tokens"),
        (message(&"x".repeat(450), json!({ "max_completion_tokens": 60 })), "max_completion_tokens"),
    ] {
        let message = server.client.post(super::super::answers::endpoint(&body), &body).refuses(param).message;
        assert!(message.contains("maximum context length is 512 tokens") && message.contains(param), "{message}");
    }
    let whole = completion("x".repeat(500), json!({ "max_tokens": 12, "ignore_eos": true }));
    assert_eq!(ask(&server.client, &whole).usage("total_tokens"), 512);
}

#[test]
fn a_small_request_cannot_ask_for_too_much() {
    let model =
        tegula_engine::engine::Scripted::new(super::super::vocabulary::VOCAB, 16, 4096, 16384).answers(&bytes("ok"));
    let server = Server::with(model, false, super::super::vocabulary::CHATML, |engine| engine);
    let refuses = |path: &str, body: Value, param: &str| server.client.post(path, &body).refuses(param).message;
    let long = "x".repeat(9000);
    let many = json!({ "n": 128, "temperature": 1, "max_tokens": 1 });
    let text = completion(long.as_str(), with(many.clone(), json!({ "prompt_logprobs": 20 })));
    assert!(refuses(COMPLETIONS, text, "prompt_logprobs").contains("24192000"));
    let echo = completion(long.as_str(), with(many.clone(), json!({ "logprobs": 20, "echo": true, "stream": true })));
    refuses(COMPLETIONS, echo, "logprobs");
    // Of all prompts together there are so many answers, and they repeat so much.
    let prompts = |n: usize, len: usize| json!(vec!["x".repeat(len); n]);
    let told = refuses(COMPLETIONS, completion(prompts(9, 1), many.clone()), "n");
    assert!(told.contains("n is 128, to each of 9 prompts; there may be 1024"), "{told}");
    let echo = with(many.clone(), json!({ "echo": true, "return_token_ids": true, "max_tokens": 0 }));
    assert!(refuses(COMPLETIONS, completion(prompts(8, 16_000), echo), "n").contains("they may repeat"));
    let eight = completion(prompts(8, 1), with(many, json!({ "ignore_eos": true })));
    assert_eq!(ask(&server.client, &eight).choices.len(), 1024);
    // A stream that nobody reads is kept too.
    for stream in [false, true] {
        let chat = json!({ "n": 16, "temperature": 1, "logprobs": true, "top_logprobs": 20, "stream": stream });
        let told = refuses(CHAT, message("p", chat.clone()), "top_logprobs");
        assert!(told.contains("it may have 2097152"), "{told}");
        let fewer = with(chat, json!({ "max_tokens": 100, "stream": false }));
        assert_eq!(both(&server.client, &message("p", fewer)).choices.len(), 16);
    }
    assert_eq!(ask(&server.client, &completion(long, json!({ "prompt_logprobs": 20, "max_tokens": 2 }))).text(), "ok");
}
