//! The stream itself: its headers, and what comes when nothing else does.

use std::io::Read;
use std::time::Duration;

use serde_json::json;
use tegula_engine::engine::Step;
use tegula_server::ServerConfig;

use super::super::answers::{CHAT, COMPLETIONS, completion, message};
use super::super::client::Response;
use super::super::server::{Server, scripted};
use super::super::vocabulary::bytes;
use super::says;

#[test]
fn a_stream_is_one_of_events() {
    let server = says("ok");
    let body = message("p", json!({ "stream": true }));
    let answer = server.client.post(CHAT, &body);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-cache"));
    let text = answer.text();
    let events: Vec<&str> = text.split_terminator("\n\n").collect();
    assert!(events.iter().all(|event| event.starts_with("data: ") && !event.contains('\n')), "{text}");
    assert_eq!(events.last(), Some(&"data: [DONE]"));
}

#[test]
fn somebody_who_waits_is_told_that_it_goes_on() {
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let model = scripted().answers(&bytes("ok")).before_each_step(move |_, _| {
        let _ = wait.recv();
        Step::Run
    });
    let config = ServerConfig { ping_interval: Duration::from_millis(20), ..ServerConfig::default() };
    let server = Server::configured(model, config);
    let body = completion("p", json!({ "stream": true })).to_string();
    let mut response = Response::new(server.client.request("POST", COMPLETIONS, body.as_bytes()));
    let mut seen = vec![0; 3 * ": ping\n\n".len()];
    response.read_exact(&mut seen).expect("it is open");
    assert_eq!(String::from_utf8(seen).expect("text"), ": ping\n\n".repeat(3));
    drop(go);
    let rest = response.whole().text();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[test]
fn events_come_as_soon_as_they_are_known() {
    // Each step waits until the token before it was read.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let model = scripted().answers(&bytes("abcdef")).before_each_step(move |_, _| {
        let _ = wait.recv();
        Step::Run
    });
    let server = Server::with(model, false, super::super::vocabulary::CHATML, |engine| engine.overlap(false));
    go.send(()).expect("a model");
    let mut events = server.client.stream(COMPLETIONS, &completion("p", json!({ "max_tokens": 4 })));
    // The last one tells that it is.
    for (expected, finish) in [("a", None), ("b", None), ("c", None), ("d", Some("length"))] {
        let event = events.next().expect("an event");
        assert_eq!(
            (&event["choices"][0]["text"], event["choices"][0]["finish_reason"].as_str()),
            (&json!(expected), finish)
        );
        go.send(()).expect("a model");
    }
    assert!(events.next().is_none());
}
