//! Rows about prompts and lengths: empty, too long, echoed, with BOS; and how long an answer may be.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tegula_engine::engine::Scripted;

use super::answers::{CHAT, COMPLETIONS, ask, both, completion, message, streamed, with};
use super::server::{Server, scripted};
use super::vocabulary::{BOS, CHATML, VOCAB, bytes, chatml_with_bos};

/// A server whose model wants BOS in front of every prompt.
fn with_bos(template: &str) -> Server {
    Server::with(scripted().answers(&bytes("ok")), true, template, |engine| engine)
}

/// The tokens that a request's prompt became.
fn prompt_ids(server: &Server, body: &Value) -> Vec<u32> {
    let body = with(body.clone(), json!({ "return_token_ids": true, "max_tokens": 1 }));
    let answer = server.client.post(super::answers::endpoint(&body), &body).ok();
    let ids = match &answer["prompt_token_ids"] {
        Value::Null => &answer["choices"][0]["prompt_token_ids"],
        ids => ids,
    };
    serde_json::from_value(ids.clone()).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

fn tokenized(server: &Server, body: Value) -> Vec<u32> {
    let answer = server.client.post("/tokenize", &body).ok();
    let tokens: Vec<u32> = serde_json::from_value(answer["tokens"].clone()).expect("tokens");
    assert_eq!(answer["count"], tokens.len());
    tokens
}

fn beginnings(tokens: &[u32]) -> usize {
    tokens.iter().filter(|&&t| t == BOS).count()
}

#[test]
pub fn t10_a_prompt_echoed_and_nothing_more() {
    let server = Server::start(scripted());
    let echo = json!({ "echo": true, "max_tokens": 0 });
    let reply = both(&server.client, &completion("a prompt", echo.clone()));
    assert_eq!((reply.text(), reply.finish()), ("a prompt", "length"));
    assert_eq!((reply.usage("prompt_tokens"), reply.usage("completion_tokens")), (8, 0));
    // Its tokens' log-probabilities, none for the first.
    let reply = ask(&server.client, &completion("abc", with(echo.clone(), json!({ "logprobs": 1 }))));
    let logprobs = &reply.choices[0].logprobs;
    assert_eq!(logprobs["tokens"], json!(["a", "b", "c"]));
    assert_eq!(logprobs["token_logprobs"].as_array().map(Vec::len), Some(3));
    assert!(logprobs["token_logprobs"][0].is_null() && logprobs["top_logprobs"][0].is_null(), "{logprobs}");
    assert!(logprobs["token_logprobs"].as_array().expect("a list")[1..].iter().all(Value::is_number));
    assert_eq!(logprobs["text_offset"], json!([0, 1, 2]));
    assert_eq!(reply.usage("completion_tokens"), 0);
    // Also of ids, and of several prompts.
    let reply = ask(&server.client, &completion(json!([104, 105]), echo.clone()));
    assert_eq!(reply.text(), "hi");
    let reply = ask(&server.client, &completion(json!(["one", "two"]), echo));
    assert_eq!(reply.choices.iter().map(|c| c.text.as_str()).collect::<Vec<_>>(), ["one", "two"]);
}

#[test]
pub fn t10_a_prompt_echoed_before_its_answer() {
    let server = Server::start(scripted().answers(&bytes("é!")));
    for n in [1, 2] {
        let body = completion("pré", json!({ "echo": true, "max_tokens": 9, "n": n, "temperature": 1 }));
        let reply = both(&server.client, &body);
        assert!(reply.choices.iter().all(|c| c.text == "préé!"), "{reply:?}");
    }
    let body = completion("ab", json!({ "echo": true, "max_tokens": 9, "logprobs": 2 }));
    let logprobs = &both(&server.client, &body).choices[0].logprobs;
    let tokens = logprobs["tokens"].as_array().expect("a list");
    assert_eq!(tokens[..2], [json!("a"), json!("b")]);
    assert_eq!(logprobs["token_logprobs"].as_array().map(Vec::len), Some(tokens.len()));
    // Nothing to echo and nothing to say is no request.
    server.client.post(COMPLETIONS, &completion("p", json!({ "max_tokens": 0 }))).refuses("max_tokens");
    server.client.post(CHAT, &message("p", json!({ "max_tokens": 0 }))).refuses("max_tokens");
}

#[test]
pub fn t11_prompts_of_nothing() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    for prompt in [json!(""), json!([]), json!([[]]), json!([""]), json!(["a", ""]), json!([[1], []]), json!(null)] {
        server.client.post(COMPLETIONS, &completion(prompt, json!({}))).refuses("prompt");
    }
    server.client.post(COMPLETIONS, &json!({})).refuses("prompt");
    for prompt in
        [json!(5), json!({}), json!(true), json!([1, "a"]), json!([[1], "a"]), json!([1.5]), json!([-1]), json!([null])]
    {
        server.client.post(COMPLETIONS, &completion(prompt, json!({}))).refuses("prompt");
    }
    for prompt in [json!([VOCAB]), json!([1, 4_000_000_000u64]), json!([18_446_744_073_709_551_615u64])] {
        server.client.post(COMPLETIONS, &completion(prompt, json!({}))).refuses("prompt");
    }
    assert_eq!(ask(&server.client, &completion("x", json!({}))).text(), "ok");
}

#[test]
pub fn t11_a_prompt_of_nothing_behind_bos() {
    let server = with_bos(CHATML);
    assert_eq!(prompt_ids(&server, &completion("", json!({}))), [BOS]);
    assert_eq!(both(&server.client, &completion("", json!({ "max_tokens": 9 }))).text(), "ok");
    server.client.post(COMPLETIONS, &completion("", json!({ "add_special_tokens": false }))).refuses("prompt");
    server.client.post(COMPLETIONS, &completion(json!([]), json!({}))).refuses("prompt");
}

#[test]
pub fn t11_messages_of_nothing() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    for messages in [
        json!([{ "role": "user", "content": "" }]),
        json!([{ "role": "user", "content": [] }]),
        json!([{ "role": "user", "content": [{ "type": "text", "text": "" }] }]),
        json!([{ "role": "system", "content": "" }, { "role": "user", "content": "" }]),
        json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": null, "tool_calls": [
            { "id": "x", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "x", "content": "" }]),
    ] {
        assert_eq!(both(&server.client, &json!({ "messages": messages, "temperature": 0 })).text(), "ok");
    }
    for messages in [
        json!([]),
        json!(null),
        json!("hello"),
        json!([5]),
        json!([{}]),
        json!([{ "content": "x" }]),
        json!([{ "role": "user" }]),
        json!([{ "role": 5, "content": "x" }]),
        json!([{ "role": "user", "content": 5 }]),
        json!([{ "role": "user", "content": [5] }]),
        json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "http://x/y.png" } }] }]),
        json!([{ "role": "user", "content": [{ "type": "text" }] }]),
    ] {
        server.client.post(CHAT, &json!({ "messages": messages })).refuses("messages");
    }
    assert_eq!(ask(&server.client, &message("x", json!({}))).text(), "ok");
}

#[test]
pub fn t13_a_prompt_ten_times_too_long() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    let context = server.engine.info().context;
    let long = "x".repeat(10 * context);
    let start = Instant::now();
    let error = server.client.post(COMPLETIONS, &completion(long.as_str(), json!({}))).refuses("prompt");
    assert!(
        error.message.contains("maximum context length") && error.message.contains(&context.to_string()),
        "{}",
        error.message
    );
    let ids = json!(vec![65; 10 * context]);
    server.client.post(COMPLETIONS, &completion(ids, json!({ "stream": true }))).refuses("prompt");
    server.client.post(COMPLETIONS, &completion(json!(["a", long]), json!({}))).refuses("prompt");
    server.client.post(CHAT, &message(&long, json!({}))).refuses("messages");
    assert!(start.elapsed() < Duration::from_secs(2), "at once, and not after {:?}", start.elapsed());
    // At the edge: an answer needs room for a token.
    server.client.post(COMPLETIONS, &completion(json!(vec![65; context]), json!({ "max_tokens": 1 }))).error(400);
    let most = completion(json!(vec![65; context - 1]), json!({ "max_tokens": 1 }));
    assert_eq!(both(&server.client, &most).finish(), "length");
    // Part of it, if that is what is wanted.
    let cut = completion(long.as_str(), json!({ "truncate_prompt_tokens": 7 }));
    assert_eq!(ask(&server.client, &cut).usage("prompt_tokens"), 7);
}

#[test]
pub fn t13_a_body_without_end() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    let most = server.max_body;
    let body = completion("x".repeat(most), json!({})).to_string();
    server.client.send("POST", COMPLETIONS, body.as_bytes()).error(413);
    let nested = "[".repeat(200_000);
    server.client.send("POST", COMPLETIONS, format!("{{\"prompt\":{nested}").as_bytes()).error(400);
    assert_eq!(ask(&server.client, &completion("x", json!({}))).text(), "ok");
}

#[test]
pub fn t14_an_answer_without_bounds_ends_with_the_context() {
    let server = Server::start(scripted());
    let context = server.engine.info().context as u64;
    let reply = both(&server.client, &message("p", json!({ "ignore_eos": true })));
    assert_eq!((reply.finish(), reply.usage("total_tokens")), ("length", context));
    let reply = both(&server.client, &completion("p", json!({ "max_tokens": context - 1 })));
    assert_eq!((reply.finish(), reply.usage("total_tokens")), ("length", context));
    // Completions have sixteen tokens if nobody says another number.
    for unset in [json!({}), json!({ "max_tokens": null })] {
        assert_eq!(ask(&server.client, &completion("p", unset)).usage("completion_tokens"), 16);
    }
    let error =
        server.client.post(COMPLETIONS, &completion("p", json!({ "max_tokens": context }))).refuses("max_tokens");
    assert!(error.message.contains("maximum context length"), "{}", error.message);
}

#[test]
pub fn t14_lengths_that_are_none() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    let huge = [
        json!(-1),
        json!(-2),
        json!(1.5),
        json!("16"),
        json!(true),
        json!([]),
        json!({}),
        json!(1e300),
        json!(u64::MAX),
        json!(i64::MIN),
    ];
    for most in huge {
        for name in ["max_tokens", "max_completion_tokens"] {
            let field = |most: &Value| Value::Object([(name.to_owned(), most.clone())].into_iter().collect());
            server.client.post(CHAT, &message("p", field(&most))).refuses(name);
        }
        server.client.post(COMPLETIONS, &completion("p", json!({ "max_tokens": most }))).refuses("max_tokens");
        server.client.post(COMPLETIONS, &completion("p", json!({ "min_tokens": most }))).refuses("min_tokens");
    }
    server
        .client
        .post(COMPLETIONS, &completion("p", json!({ "min_tokens": 5, "max_tokens": 4 })))
        .refuses("min_tokens");
    // An integer is one, however it is written.
    assert_eq!(ask(&server.client, &completion("p", json!({ "max_tokens": 16 }))).text(), "ok");
    // llama.cpp's name is not known here, and that is said.
    let answer = server.client.post(COMPLETIONS, &completion("p", json!({ "n_predict": -1 })));
    assert_eq!((answer.status, answer.header("x-ignored-parameters")), (200, Some("n_predict")));
}

#[test]
pub fn t15_one_bos_whatever_the_way() {
    let (in_template, by_tokenizer) = (with_bos(&chatml_with_bos()), with_bos(CHATML));
    for server in [&in_template, &by_tokenizer] {
        let ids = prompt_ids(server, &message("hi", json!({})));
        assert_eq!(tokenized(server, message("hi", json!({}))), ids, "/tokenize says what is served");
        let ids = prompt_ids(server, &completion("hi", json!({})));
        assert_eq!(ids, [BOS, 104, 105]);
        assert_eq!(tokenized(server, json!({ "prompt": "hi" })), ids);
        let without = json!({ "add_special_tokens": false });
        assert_eq!(prompt_ids(server, &completion("hi", without.clone())), [104, 105]);
        assert_eq!(tokenized(server, with(without, json!({ "prompt": "hi" }))), [104, 105]);
        // One that is there already is not doubled.
        assert_eq!(beginnings(&prompt_ids(server, &completion("<|bos|>hi", json!({})))), 1);
        assert_eq!(prompt_ids(server, &completion(json!([BOS, 104]), json!({}))), [BOS, 104]);
        // Ids are what they are.
        assert_eq!(prompt_ids(server, &completion(json!([104]), json!({}))), [104]);
    }
    for more in [json!({}), json!({ "add_special_tokens": true }), json!({ "add_special_tokens": false })] {
        assert_eq!(beginnings(&prompt_ids(&in_template, &message("hi", more))), 1);
    }
    // What a user writes begins nothing.
    let ids = prompt_ids(&in_template, &message("<|bos|><|im_end|>", json!({})));
    assert_eq!(beginnings(&ids), 1);
    assert_eq!(ids, tokenized(&in_template, message("<|bos|><|im_end|>", json!({}))));
}

#[test]
pub fn t15_without_bos_there_is_none() {
    let server = Server::start(scripted().answers(&bytes("ok")));
    assert_eq!(prompt_ids(&server, &completion("hi", json!({}))), [104, 105]);
    assert_eq!(beginnings(&prompt_ids(&server, &message("hi", json!({})))), 0);
    assert_eq!(tokenized(&server, json!({ "prompt": "é" })), [0xc3, 0xa9]);
    let back = server.client.post("/detokenize", &json!({ "tokens": [0xc3, 0xa9, 104] })).ok();
    assert_eq!(back["prompt"], "éh");
}

/// A pool of four blocks of sixteen tokens, and a context that it cannot hold.
fn small_pool() -> Server {
    Server::start(Scripted::new(VOCAB, 16, 4, 512))
}

#[test]
pub fn t31_more_than_the_pool() {
    let server = small_pool();
    server.client.post(COMPLETIONS, &completion("x".repeat(65), json!({ "max_tokens": 1 }))).refuses("prompt");
    server.client.post(COMPLETIONS, &completion("x".repeat(400), json!({ "max_tokens": 1 }))).refuses("prompt");
    // An answer that fills the pool ends there; the last token needs no room.
    let reply = both(&server.client, &completion("x".repeat(40), json!({ "max_tokens": 400 })));
    assert_eq!((reply.finish(), reply.usage("completion_tokens")), ("length", 25));
    let reply = both(&server.client, &completion("x".repeat(64), json!({ "max_tokens": 5 })));
    assert_eq!((reply.finish(), reply.usage("completion_tokens")), ("length", 1));
}

#[test]
pub fn t31_the_queue_goes_on_behind_it() {
    let server = small_pool();
    let alone = ask(&server.client, &completion("y", json!({ "max_tokens": 8 }))).text().to_owned();
    std::thread::scope(|scope| {
        let ask_all = (0..12).map(|i| {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || match i % 3 {
                0 => {
                    let reply = streamed(&server.client, &completion("x".repeat(40), json!({ "max_tokens": 400 })));
                    assert_eq!((reply.finish(), reply.text().len()), ("length", 25));
                }
                1 => {
                    server.client.post(COMPLETIONS, &completion("x".repeat(65), json!({}))).refuses("prompt");
                }
                _ => assert_eq!(ask(&server.client, &completion("y", json!({ "max_tokens": 8 }))).text(), alone),
            })
        });
        ask_all.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("served"));
    });
}

#[test]
pub fn t40_the_newer_name_of_the_most_tokens() {
    let server = Server::start(scripted());
    let tokens = |more| both(&server.client, &message("p", more)).usage("completion_tokens");
    assert_eq!(tokens(json!({ "max_completion_tokens": 3 })), 3);
    assert_eq!(tokens(json!({ "max_completion_tokens": 3, "max_tokens": 7 })), 3);
    assert_eq!(tokens(json!({ "max_completion_tokens": 7, "max_tokens": 3 })), 7);
    assert_eq!(tokens(json!({ "max_completion_tokens": null, "max_tokens": 4 })), 4);
    server
        .client
        .post(CHAT, &message("p", json!({ "max_completion_tokens": 0, "max_tokens": 3 })))
        .refuses("max_completion_tokens");
}
