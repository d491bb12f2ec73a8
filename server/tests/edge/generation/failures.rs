//! Answers that break off: because of the engine, or because nobody waits for them.

use std::time::Duration;

use serde_json::{Value, json};
use tegula_engine::engine::Step;

use super::super::answers::{CHAT, COMPLETIONS, ask, completion, message, with};
use super::super::client::ApiError;
use super::super::server::{Server, scripted};
use super::super::vocabulary::{CHATML, bytes};

/// A server whose model fails at a step, in its own way, then is well.
fn fails_once(at: u64, how: Step) -> Server {
    let model = scripted()
        .answers(&bytes("a longer answer than that"))
        .before_each_step(move |step, _| if step == at { how.clone() } else { Step::Run });
    Server::start(model)
}

/// The last event is an error; what comes before is none, and more than one. Returns it.
#[track_caller]
fn broken_off(events: &[Value]) -> ApiError {
    let (last, before) = events.split_last().expect("events");
    assert!(before.len() > 1 && before.iter().all(|event| event["choices"].is_array()), "{events:?}");
    assert!(before.iter().all(|event| event["choices"][0]["finish_reason"].is_null()));
    ApiError::read(&last["error"]).unwrap_or_else(|| panic!("no error: {last}"))
}

#[test]
fn a_step_that_fails_ends_its_streams_with_an_error() {
    for how in [Step::Fail("the numbers overflowed".into()), Step::FailRow(0, "the numbers overflowed".into())] {
        for body in [completion("p", json!({ "max_tokens": 40 })), message("p", json!({ "max_tokens": 40 }))] {
            let path = super::super::answers::endpoint(&body);
            let server = fails_once(7, how.clone());
            let options = json!({ "stream_options": { "include_usage": true } });
            let error = broken_off(&server.client.stream(path, &with(body.clone(), options)).rest());
            assert_eq!((error.status, error.kind.as_str()), (500, "InternalServerError"));
            assert!(error.message.contains("the numbers overflowed"), "{}", error.message);
            // A whole answer says it with its status.
            let server = fails_once(7, how.clone());
            let error = server.client.post(path, &body).error(500);
            assert!(error.message.contains("the numbers overflowed"), "{}", error.message);
            assert_eq!(ask(&server.client, &body).text(), "a longer answer than that");
        }
    }
}

#[test]
fn a_row_that_fails_does_not_concern_others() {
    // Both are in the batch; the second one's row fails.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let mut wait = Some(wait);
    let mut failed = false;
    let model = scripted().answers(&bytes("a longer answer than that")).before_each_step(move |_, work| {
        if let Some(wait) = wait.take() {
            let _ = wait.recv();
        }
        let all = work.plan.rows.iter().all(|row| row.start > 10) && work.plan.rows.len() == 2;
        if all && !std::mem::replace(&mut failed, true) { Step::FailRow(1, "odd".into()) } else { Step::Run }
    });
    let server = Server::start(model);
    let body = completion("ten tokens", json!({ "max_tokens": 60 }));
    let (first, second) = std::thread::scope(|scope| {
        let ask = || scope.spawn(|| server.client.post(COMPLETIONS, &body));
        let first = ask();
        server.wait("one is there", || server.engine.num_waiting() + server.engine.stats().scheduler.num_running >= 1);
        let second = ask();
        server
            .wait("both are there", || server.engine.num_waiting() + server.engine.stats().scheduler.num_running >= 2);
        drop(go);
        (first.join().expect("an answer"), second.join().expect("an answer"))
    });
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 500]);
    let well = if first.status == 200 { first } else { second };
    assert_eq!(well.ok()["choices"][0]["text"], "a longer answer than that");
}

#[test]
fn what_is_ended_says_so() {
    let server = Server::start(scripted().step_time(Duration::from_millis(1)));
    let body = message("p", json!({ "max_tokens": 400, "n": 2, "temperature": 1 }));
    let mut events = server.client.stream(CHAT, &body);
    let mut before: Vec<Value> = events.by_ref().take(6).collect();
    server.engine.abort_all();
    before.extend(events);
    let error = broken_off(&before);
    assert_eq!((error.status, error.kind.as_str()), (503, "ServiceUnavailableError"));
}

#[test]
fn a_client_that_goes_away_leaves_nothing_behind() {
    let server = Server::with(scripted().step_time(Duration::from_millis(1)), false, CHATML, |e| e.max_num_seqs(8));
    let long = json!({ "max_tokens": 400, "n": 3, "temperature": 1, "prompt": ["one", "two"] });
    for stream in [true, false] {
        for _ in 0..3 {
            let body = with(long.clone(), json!({ "stream": stream }));
            let socket = server.client.request("POST", COMPLETIONS, body.to_string().as_bytes());
            server.wait("it runs", || server.engine.stats().scheduler.num_running > 3);
            drop(socket);
            server.wait_idle();
            assert_eq!(server.engine.stats().scheduler.kv.used, 0);
        }
    }
}

#[test]
fn nothing_is_left_of_a_request_that_is_refused_in_the_middle() {
    // The queue has room for some of the prompts only.
    let server = Server::with(scripted().step_time(Duration::from_millis(5)), false, CHATML, |e| {
        e.max_waiting(3).max_num_seqs(1)
    });
    let prompts: Vec<String> = (0..40).map(|n| format!("prompt {n}")).collect();
    server.client.post(COMPLETIONS, &json!({ "prompt": prompts, "max_tokens": 300 })).error(429);
    server.wait_idle();
    // A form that makes no sense is seen by the engine, for each prompt.
    let form = json!({ "prompt": ["a", "b"], "guided_regex": "(" });
    server.client.post(COMPLETIONS, &form).refuses("guided_regex");
}
