//! Loading, ready, draining, stalled, failed: what who asks is told.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use tegula_engine::engine::{Engine, Step};
use tegula_server::ServerConfig;

use super::answers::{COMPLETIONS, completion};
use super::client::Client;
use super::server::{Server, scripted};
use super::vocabulary::{bytes, tokenizer};

#[test]
fn a_server_answers_before_its_model_is_there() {
    let server = tegula_server::Server::bind("127.0.0.1:0", ServerConfig::default()).unwrap();
    let app = server.app().clone();
    let running = server.start().unwrap();
    let client = Client::new(running.addr());
    for path in ["/health", "/ready", "/v1/models", "/server_info"] {
        let answer = client.get(path);
        assert!(answer.error(503).message.contains("loading"), "{path}");
        assert!(answer.header("retry-after").is_some(), "{path}");
    }
    for path in [COMPLETIONS, "/v1/chat/completions", "/tokenize", "/reset_prefix_cache"] {
        let body = match path {
            "/v1/chat/completions" => json!({ "messages": [{ "role": "user", "content": "q" }] }),
            _ => json!({ "prompt": "p" }),
        };
        assert!(client.post(path, &body).error(503).message.contains("loading"), "{path}");
    }
    assert!(
        client.get_json("/version")["version"].as_str().is_some_and(|v| v.starts_with(|c: char| c.is_ascii_digit()))
    );
    assert_eq!(client.get("/metrics").status, 200);

    let engine = Engine::builder("late").build_on(scripted().answers(&bytes("ok")), tokenizer(false), None).unwrap();
    app.serve_with(engine);
    assert_eq!((client.get("/health").status, client.get("/ready").status), (200, 200));
    assert_eq!(client.post(COMPLETIONS, &completion("p", json!({}))).ok()["choices"][0]["text"], "ok");
}

#[test]
fn a_server_that_drains_takes_nothing_new_and_finishes() {
    let server = Server::start(scripted().step_time(Duration::from_millis(5)));
    let mut stream =
        server.client.stream(COMPLETIONS, &completion("p", json!({ "max_tokens": 60, "ignore_eos": true })));
    assert!(stream.next().is_some());
    drop(server.engine.drain(Duration::from_secs(20)));
    assert_eq!(server.client.get("/health").status, 200, "it is well");
    assert!(server.client.get("/ready").error(503).message.contains("shutting down"));
    let refused = server.client.post(COMPLETIONS, &completion("q", json!({})));
    refused.error(503);
    assert!(refused.header("retry-after").is_some());
    let last = stream.rest().pop().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
}

/// T43.
#[test]
fn a_device_that_hangs_is_seen_within_the_heartbeat() {
    let (release, hangs) = mpsc::channel::<()>();
    let hangs = std::sync::Mutex::new(hangs);
    let model = scripted().before_each_step(move |step, _| {
        if step == 2 {
            let _ = hangs.lock().unwrap().recv();
        }
        Step::Run
    });
    let server = Server::with(model, false, super::vocabulary::CHATML, |b| b.heartbeat(Duration::from_millis(300)));
    assert_eq!(server.client.get_json("/server_info")["heartbeat_seconds"], 0.3);
    let stream = server.client.stream(COMPLETIONS, &completion("p", json!({ "max_tokens": 20, "ignore_eos": true })));
    let start = Instant::now();
    server.wait("/health says so", || server.client.get("/health").status == 503);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(server.client.get("/health").error(503).message.contains("no step has moved"));
    server.client.get("/ready").error(503);
    // What does not need the device is answered.
    server.client.post("/tokenize", &json!({ "prompt": "abc" })).ok();
    drop(release);
    server.wait("/health is well again", || server.client.get("/health").status == 200);
    drop(stream);
}

#[test]
fn an_engine_that_failed_says_so() {
    let model = scripted().before_each_step(|_, _| Step::Lose("the card fell off".into()));
    let mut server = Server::start(model);
    server.broken = true;
    let answer = server.client.post(COMPLETIONS, &completion("p", json!({})));
    assert!(answer.status >= 500, "{}", answer.status);
    server.wait("/health says so", || server.client.get("/health").status == 503);
    for path in ["/health", "/ready"] {
        assert!(server.client.get(path).error(503).message.contains("the card fell off"));
    }
    server.client.post(COMPLETIONS, &completion("p", json!({}))).error(503);
}

#[test]
fn server_info_tells_all_that_decides() {
    let server = Server::with(scripted(), false, super::vocabulary::CHATML, |b| b.overlap(false).max_waiting(7));
    let info = server.client.get_json("/server_info");
    assert_eq!(info["model"]["names"], json!(["test-model"]));
    assert_eq!((&info["model"]["architecture"], &info["model"]["context"]), (&json!("scripted"), &json!(512)));
    assert_eq!((&info["scheduler"]["overlap"], &info["scheduler"]["max_model_len"]), (&json!(false), &json!(512)));
    assert_eq!((&info["limits"]["max_waiting"], &info["limits"]["max_body_bytes"]), (&json!(7), &json!(8 << 20)));
    assert_eq!((&info["memory"]["kv_blocks"], &info["memory"]["kv_tokens"]), (&json!(256), &json!(4096)));
    for part in ["order", "kernels"] {
        assert!(info.get(part).is_some(), "{part}");
    }
    let disabled = info["disabled"].as_array().unwrap();
    assert!(disabled.iter().all(|entry| entry["reason"].as_str().is_some_and(|why| !why.is_empty())));
    let has = |name: &str| disabled.iter().any(|entry| entry["feature"] == name);
    assert!(has("adapters") && has("overlap") && !has("chat") && !has("prefix_caching") && !has("structured_outputs"));
}

#[test]
fn the_prefix_cache_can_be_forgotten() {
    let server = Server::start(scripted());
    let body = completion("a prompt of more than two blocks of tokens", json!({ "max_tokens": 1 }));
    let cached = || {
        let usage = &server.client.post(COMPLETIONS, &body).ok()["usage"];
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0)
    };
    assert_eq!(cached(), 0);
    assert!(cached() >= 32);
    assert_eq!(server.client.post("/reset_prefix_cache", &json!({})).ok(), json!({ "success": true }));
    assert_eq!(cached(), 0);
}
