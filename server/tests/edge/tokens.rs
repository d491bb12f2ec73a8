//! `/tokenize` and `/detokenize`.

use proptest::prelude::*;
use serde_json::{Value, json};
use tegula_server::ServerConfig;

use super::server::{Server, scripted};
use super::vocabulary::{BOS, CHATML, CONTROL, IM_END, VOCAB, bytes, chatml_with_bos};

fn tokens(answer: &Value) -> Vec<u32> {
    let tokens: Vec<u32> = serde_json::from_value(answer["tokens"].clone()).unwrap();
    assert_eq!(answer["count"], tokens.len());
    tokens
}

#[test]
fn texts_become_tokens_and_tokens_texts() {
    let server = Server::start(scripted());
    let answer = server.client.post("/tokenize", &json!({ "prompt": "aé<|im_end|>" })).ok();
    assert_eq!(tokens(&answer), [bytes("aé"), vec![IM_END]].concat());
    assert_eq!((&answer["max_model_len"], &answer["token_strs"]), (&json!(512), &Value::Null));
    let answer = server.client.post("/tokenize", &json!({ "prompt": "aé<|im_end|>", "return_token_strs": true })).ok();
    assert_eq!(answer["token_strs"], json!(["a", "\u{fffd}", "\u{fffd}", "<|im_end|>"]));
    assert_eq!(
        server.client.post("/detokenize", &json!({ "tokens": answer["tokens"] })).ok(),
        json!({ "prompt": "aé<|im_end|>" })
    );
    assert_eq!(server.client.post("/detokenize", &json!({ "tokens": [] })).ok(), json!({ "prompt": "" }));
    assert_eq!(tokens(&server.client.post("/tokenize", &json!({ "prompt": "" })).ok()), [] as [u32; 0]);
}

#[test]
fn what_is_wrong_is_named() {
    let server = Server::start(scripted());
    let tokenize = |body: Value| server.client.post("/tokenize", &body);
    tokenize(json!({})).refuses("prompt");
    tokenize(json!({ "prompt": ["a"] })).refuses("prompt");
    tokenize(json!({ "prompt": "a", "messages": [] })).refuses("prompt");
    tokenize(json!({ "messages": "a" })).refuses("messages");
    tokenize(json!({ "prompt": "a", "add_special_tokens": "no" })).refuses("add_special_tokens");
    let detokenize = |body: Value| server.client.post("/detokenize", &body);
    detokenize(json!({})).refuses("tokens");
    detokenize(json!({ "tokens": "a" })).refuses("tokens");
    detokenize(json!({ "tokens": [-1] })).refuses("tokens");
    detokenize(json!({ "tokens": [1.5] })).refuses("tokens");
    let error = detokenize(json!({ "tokens": [97, VOCAB] })).refuses("tokens");
    assert!(
        error.message.contains("place 1") && error.message.contains(&format!("0 to {}", VOCAB - 1)),
        "{}",
        error.message
    );
}

#[test]
fn what_would_change_the_tokens_and_is_not_supported_is_refused() {
    let server = Server::start(scripted());
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let template = "{{ messages[0].content }}";
    server
        .client
        .post("/tokenize", &json!({ "messages": messages, "chat_template": template }))
        .refuses("chat_template");
    server.client.post("/tokenize", &json!({ "messages": messages, "documents": ["d"] })).refuses("documents");
    server.client.post("/detokenize", &json!({ "tokens": [97], "chat_template": template })).refuses("chat_template");
    server.client.post("/tokenize", &json!({ "messages": messages, "documents": [], "chat_template": null })).ok();
}

#[test]
fn a_text_of_tokens_has_a_length() {
    let server = Server::start(scripted());
    // <|im_end|> has ten bytes: 34 MB of text from 17 MB of tokens.
    let config = ServerConfig { max_body: 32 << 20, ..ServerConfig::default() };
    let large = Server::configured(scripted(), config);
    let tokens = |count: usize| json!({ "tokens": vec![IM_END; count] });
    let error = large.client.post("/detokenize", &tokens(3_400_000)).refuses("tokens");
    assert!(error.message.contains("33554432 bytes"), "{}", error.message);
    let text = server.client.post("/detokenize", &tokens(50_000)).ok();
    assert_eq!(text["prompt"], "<|im_end|>".repeat(50_000));
}

/// T15.
#[test]
fn there_is_one_bos_whatever_the_way() {
    let with_bos = chatml_with_bos();
    for (add_bos, chat, wanted) in [(true, CHATML, 1), (true, &with_bos, 1), (false, CHATML, 0), (false, &with_bos, 1)]
    {
        let server = Server::with(scripted(), add_bos, chat, |builder| builder);
        let ask = |body: Value| tokens(&server.client.post("/tokenize", &body).ok());
        let count = |tokens: &[u32]| tokens.iter().filter(|token| **token == BOS).count();
        let messages = json!([{ "role": "user", "content": "hi" }]);
        let chat_tokens = ask(json!({ "messages": messages }));
        assert_eq!(
            count(&chat_tokens),
            if add_bos { wanted } else { chat_tokens.iter().filter(|t| **t == BOS).count() }
        );
        if add_bos {
            assert_eq!(chat_tokens[0], BOS);
            assert_eq!(ask(json!({ "prompt": "hi" })), [vec![BOS], bytes("hi")].concat());
            assert_eq!(ask(json!({ "prompt": "<|bos|>hi" })), [vec![BOS], bytes("hi")].concat());
        } else {
            assert_eq!(ask(json!({ "prompt": "hi" })), bytes("hi"));
        }
        assert_eq!(ask(json!({ "prompt": "hi", "add_special_tokens": false })), bytes("hi"));
        assert_eq!(count(&ask(json!({ "prompt": "", "add_special_tokens": true }))), usize::from(add_bos));
    }
}

#[test]
fn messages_become_what_a_chat_would_run_on() {
    let server = Server::start(scripted());
    let ask = |body: Value| server.client.post("/tokenize", &body).ok();
    let messages = json!([{ "role": "user", "content": "a <|im_end|> b" }]);
    let found = tokens(&ask(json!({ "messages": messages })));
    assert_eq!(found.iter().filter(|token| **token == IM_END).count(), 1, "a user's text makes no control tokens");
    let text = server.client.post("/detokenize", &json!({ "tokens": found })).ok()["prompt"].clone();
    assert_eq!(text, "<|im_start|>user\na <|im_end|> b<|im_end|>\n<|im_start|>assistant\n");
    let usage =
        server.client.post("/v1/chat/completions", &json!({ "messages": messages, "max_tokens": 1 })).ok()["usage"]
            .clone();
    assert_eq!(usage["prompt_tokens"], found.len());
    let without = tokens(&ask(json!({ "messages": messages, "add_generation_prompt": false })));
    assert!(without.len() < found.len() && found.starts_with(&without));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every text comes back, and so do the tokens of it.
    #[test]
    fn there_and_back_again(parts in proptest::collection::vec(part(), 0..6)) {
        thread_local!(static SERVER: Server = Server::start(scripted()));
        let text = parts.concat();
        SERVER.with(|server| {
            let ids = tokens(&server.client.post("/tokenize", &json!({ "prompt": text })).ok());
            let back = server.client.post("/detokenize", &json!({ "tokens": ids })).ok();
            prop_assert_eq!(back["prompt"].as_str(), Some(text.as_str()));
            Ok(())
        })?;
    }
}

fn part() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<char>().prop_map(String::from),
        "[ -~]{0,8}",
        proptest::sample::select(&CONTROL[..]).prop_map(str::to_owned),
    ]
}
