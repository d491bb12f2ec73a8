//! The model and its names.

use serde_json::json;
use tegula_engine::engine::Engine;
use tegula_server::ServerConfig;

use super::answers::{CHAT, COMPLETIONS, completion, message};
use super::server::{Server, scripted};
use super::vocabulary::{CHATML, template, tokenizer};

fn named() -> Server {
    let engine = Engine::builder("organisation/model").max_model_len(300);
    let engine = engine.build_on(scripted(), tokenizer(false), Some(template(CHATML))).unwrap();
    Server::of(engine, ServerConfig { aliases: vec!["gpt".into(), "größe 1".into()], ..ServerConfig::default() })
}

#[test]
fn models_are_listed_under_all_names() {
    let server = named();
    let list = server.client.get_json("/v1/models");
    assert_eq!(list["object"], "list");
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().map(|card| card["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["organisation/model", "gpt", "größe 1"]);
    for card in list["data"].as_array().unwrap() {
        assert_eq!(
            (&card["object"], &card["root"], &card["max_model_len"]),
            (&json!("model"), &json!("organisation/model"), &json!(300))
        );
        assert!(card["created"].as_u64().is_some_and(|since| since > 1_700_000_000));
        assert!(card["owned_by"].is_string());
    }
    for (path, id) in [
        ("organisation/model", "organisation/model"),
        ("organisation%2Fmodel", "organisation/model"),
        ("gr%C3%B6%C3%9Fe%201", "größe 1"),
    ] {
        assert_eq!(server.client.get_json(&format!("/v1/models/{path}"))["id"], id);
    }
    let error = server.client.get("/v1/models/other").error(404);
    assert!(error.message.contains("`other`") && error.message.contains("organisation/model"), "{}", error.message);
}

#[test]
fn requests_may_use_each_name_or_none_but_no_other() {
    let server = named();
    for name in [json!("organisation/model"), json!("gpt"), json!("größe 1"), json!(null)] {
        for (path, mut body) in [
            (COMPLETIONS, completion("p", json!({ "max_tokens": 1 }))),
            (CHAT, message("q", json!({ "max_tokens": 1 }))),
            ("/tokenize", json!({ "prompt": "p" })),
            ("/detokenize", json!({ "tokens": [112] })),
        ] {
            body["model"] = name.clone();
            server.client.post(path, &body).ok();
            body["model"] = json!("Organisation/Model");
            let error = server.client.post(path, &body).error(404);
            assert_eq!(error.param.as_deref(), Some("model"), "{path}");
            body["model"] = json!(7);
            server.client.post(path, &body).refuses("model");
        }
    }
}
