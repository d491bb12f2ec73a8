//! Rows about what lives longer than a request: cached blocks, the pool, metrics, health, the process.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tegula_engine::engine::{Scripted, Step};

use super::answers::{COMPLETIONS, ask, both, completion, message, put_together, streamed, with};
use super::client::Response;
use super::server::{Server, scripted};
use super::vocabulary::{CHATML, VOCAB, bytes};

/// Forty-eight tokens, three whole blocks, and one.
fn long_prompt() -> String {
    "A prompt that fills three blocks of the cache, surely.".chars().take(49).collect()
}

#[test]
pub fn t28_a_salt_keeps_blocks_apart() {
    let server = Server::start(scripted());
    let cached = |more: Value| {
        let reply = ask(&server.client, &completion(long_prompt(), with(json!({ "max_tokens": 2 }), more)));
        reply.cached()
    };
    let salt = |salt: &str| json!({ "cache_salt": salt });
    assert_eq!([cached(json!({})), cached(json!({}))], [0, 48]);
    assert_eq!([cached(salt("s1")), cached(salt("s1"))], [0, 48]);
    assert_eq!([cached(salt("s2")), cached(salt("s2"))], [0, 48]);
    // A salt that is some other thing's name, or begins as another one, is still a salt of its own.
    for other in ["scripted", "test-model", "s", "s1 ", "s11", "S1", "0", "null", "s1\0"] {
        assert_eq!(cached(salt(other)), 0, "{other:?}");
    }
    // None is none.
    assert_eq!(cached(json!({ "cache_salt": null })), 48);
    assert_eq!(cached(salt("s1")), 48);
    // Both endpoints know it.
    let chat = |salt: &str| {
        ask(&server.client, &message(&long_prompt(), json!({ "cache_salt": salt, "max_tokens": 2 }))).cached()
    };
    assert_eq!(chat("t1"), 0);
    assert!(chat("t1") > 0);
    assert_eq!(chat("t2"), 0);
    // Everything is forgotten when that is asked for, under every salt.
    assert_eq!(server.client.send("POST", "/reset_prefix_cache", b"").status, 200);
    server.wait_idle();
    assert_eq!([cached(json!({})), cached(salt("s1"))], [0, 0]);
}

#[test]
pub fn t29_the_cache_changes_no_answer() {
    let (on, off) = (Server::start(scripted()), Server::with(scripted(), false, CHATML, |e| e.prefix_cache(false)));
    let p = long_prompt();
    let mut changed = p.clone();
    changed.replace_range(20..21, "#");
    for prompt in [p.clone(), p.clone(), format!("{p}x"), changed, p[..30].to_owned(), p] {
        let body = completion(prompt, json!({ "max_tokens": 20, "logprobs": 2 }));
        let (with_cache, without) = (both(&on.client, &body), both(&off.client, &body));
        assert_eq!(with_cache.choices, without.choices);
        assert_eq!(without.cached(), 0);
    }
    assert!(on.engine.stats().scheduler.prefix_cache.hits > 0);
}

#[test]
pub fn t30_preempted_answers_are_the_same() {
    let (tight, wide) = (Server::start(Scripted::new(VOCAB, 16, 7, 512)), Server::start(scripted()));
    let body = |i: usize| completion(format!("{i}{}", "y".repeat(33)), json!({ "max_tokens": 30, "logprobs": 1 }));
    let alone: Vec<_> = (0..3).map(|i| ask(&wide.client, &body(i))).collect();
    for _ in 0..3 {
        std::thread::scope(|scope| {
            let tight = &tight;
            let asked: Vec<_> = (0..3).map(|i| scope.spawn(move || streamed(&tight.client, &body(i)))).collect();
            for (thread, expected) in asked.into_iter().zip(&alone) {
                assert_eq!(thread.join().expect("served").choices, expected.choices);
            }
        });
    }
    assert!(tight.metric("vllm:num_preemptions_total", &[]) > 0.0);
    assert_eq!(wide.metric("vllm:num_preemptions_total", &[]), 0.0);
    // Several answers of one request compete in the same way.
    let n = completion("z".repeat(34), json!({ "n": 3, "seed": 4, "temperature": 1, "max_tokens": 30 }));
    assert_eq!(both(&tight.client, &n).choices, both(&wide.client, &n).choices);
}

#[test]
pub fn t32_sockets_dropped_at_any_token() {
    let server = Server::start(scripted().step_time(Duration::from_micros(500)));
    let baseline = server.metric("vllm:kv_cache_usage_perc", &[]);
    std::thread::scope(|scope| {
        for i in 0..20 {
            let server = &server;
            scope.spawn(move || {
                let body =
                    completion(format!("{i} {}", "z".repeat(40)), json!({ "max_tokens": 300, "ignore_eos": true }));
                let mut events = server.client.stream(COMPLETIONS, &body);
                let read = events.by_ref().take(i * 7 % 23).count();
                assert_eq!(read, i * 7 % 23);
                events.vanish();
            });
        }
    });
    server.wait_idle();
    assert_eq!(server.metric("vllm:num_requests_running", &[]), 0.0);
    assert_eq!(server.metric("vllm:num_requests_waiting", &[]), 0.0);
    assert_eq!(server.metric("vllm:kv_cache_usage_perc", &[]), baseline);
    let kv = server.engine.stats().scheduler.kv;
    assert_eq!((kv.used, kv.free()), (0, kv.total()));
    assert_eq!(server.metric("vllm:request_success_total", &["abort"]), 20.0);
}

#[test]
pub fn t32_clients_that_vanish_before_there_is_anything_to_read() {
    let server = Server::start(scripted().step_time(Duration::from_millis(2)));
    // Neither streamed nor read: gone while the answer is computed, or half way through the request.
    let body = completion("p", json!({ "max_tokens": 400, "ignore_eos": true })).to_string();
    for _ in 0..8 {
        drop(server.client.request("POST", COMPLETIONS, body.as_bytes()));
    }
    let mut socket = server.client.connect();
    write!(socket, "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{{\"prompt\":")
        .expect("sent");
    drop(socket);
    let started = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    server.wait_idle();
    assert!(started.elapsed() < Duration::from_millis(700), "not after 400 steps of 2 ms, {:?}", started.elapsed());
}

#[test]
pub fn t32_half_of_many_samples_are_dropped_with_their_request() {
    let server = Server::start(scripted().step_time(Duration::from_millis(1)));
    let body =
        completion(json!(["a", "b", "c"]), json!({ "n": 4, "temperature": 1, "max_tokens": 400, "ignore_eos": true }));
    let mut events = server.client.stream(COMPLETIONS, &body);
    assert_eq!(events.by_ref().take(30).count(), 30);
    events.vanish();
    server.wait_idle();
    assert_eq!(server.metric("vllm:request_success_total", &["abort"]), 12.0);
}

#[test]
pub fn t34_metrics_agree_with_what_was_served() {
    let server = Server::start(scripted().step_time(Duration::from_micros(300)));
    let (mut prompt, mut generated) = (0, 0);
    for i in 0..7 {
        let reply = streamed(
            &server.client,
            &completion(
                "p".repeat(i + 1),
                json!({ "max_tokens": i + 2, "ignore_eos": true,
            "stream_options": { "include_usage": true } }),
            ),
        );
        prompt += reply.usage("prompt_tokens");
        generated += reply.usage("completion_tokens");
    }
    let stops = Server::start(scripted().answers(&bytes("ok")));
    assert_eq!(ask(&stops.client, &message("p", json!({}))).finish(), "stop");
    assert_eq!(stops.metric("vllm:request_success_total", &["stop"]), 1.0);
    assert_eq!(server.metric("vllm:request_success_total", &["length"]), 7.0);
    assert_eq!(server.metric("vllm:prompt_tokens_total", &[]), prompt as f64);
    assert_eq!(server.metric("vllm:generation_tokens_total", &[]), generated as f64);
    assert_eq!(server.metric("vllm:time_to_first_token_seconds_count", &[]), 7.0);
    assert_eq!(server.metric("vllm:e2e_request_latency_seconds_count", &[]), 7.0);
    assert_eq!(server.metric("vllm:request_prompt_tokens_sum", &[]), prompt as f64);
    assert_eq!(server.metric("vllm:request_generation_tokens_sum", &[]), generated as f64);
    // Aborted ones, each after its first token.
    let mut open: Vec<_> = (0..5)
        .map(|_| server.client.stream(COMPLETIONS, &completion("p", json!({ "max_tokens": 400, "ignore_eos": true }))))
        .collect();
    open.iter_mut().for_each(|events| assert_eq!(events.by_ref().take(2).count(), 2));
    server.wait("they are seen to run", || server.metric("vllm:num_requests_running", &[]) == 5.0);
    drop(open);
    server.wait_idle();
    assert_eq!(server.metric("vllm:request_success_total", &["abort"]), 5.0);
    assert_eq!(server.metric("vllm:time_to_first_token_seconds_count", &[]), 12.0);
    assert_eq!(server.metric("vllm:request_success_total", &[]), 12.0);
    for gauge in ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"] {
        assert_eq!(server.metric(gauge, &[]), 0.0, "{gauge}");
    }
    // What was refused was never a request to the engine.
    server.client.post(COMPLETIONS, &completion("p", json!({ "top_p": 7 }))).error(400);
    assert_eq!(server.metric("vllm:request_success_total", &[]), 12.0);
}

#[test]
pub fn t34_metrics_after_all_were_aborted() {
    let server = Server::start(scripted().step_time(Duration::from_millis(1)));
    let body = completion("p", json!({ "max_tokens": 400, "ignore_eos": true }));
    let mut open: Vec<_> = (0..3).map(|_| server.client.stream(COMPLETIONS, &body)).collect();
    open.iter_mut().for_each(|events| assert!(events.next().is_some()));
    server.engine.abort_all();
    server.wait_idle();
    for events in open {
        let rest = events.rest();
        let last = rest.last().expect("an end");
        assert!(last.get("error").is_some() || last["choices"][0]["finish_reason"] == "abort", "{last}");
    }
    assert_eq!(server.metric("vllm:request_success_total", &["abort"]), 3.0);
    assert_eq!(server.metric("vllm:num_requests_running", &[]), 0.0);
    assert_eq!(both(&server.client, &completion("p", json!({ "max_tokens": 3 }))).finish(), "length");
}

#[test]
pub fn t43_a_step_that_never_ends_is_seen() {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let model = scripted().before_each_step(move |step, _| {
        if step == 3 {
            // Until the test lets it go on.
            let _ = gate.recv();
        }
        Step::Run
    });
    let heartbeat = Duration::from_millis(300);
    let server = Server::with(model, false, CHATML, |e| e.heartbeat(heartbeat));
    assert_eq!(server.client.get("/health").status, 200);
    let declared = server.client.get_json("/server_info");
    assert!(declared.to_string().contains("heartbeat"), "it is declared: {declared}");
    let events = server.client.stream(COMPLETIONS, &completion("p", json!({ "max_tokens": 20, "ignore_eos": true })));
    let start = Instant::now();
    server.wait("it is unhealthy", || server.client.get("/health").status == 503);
    assert!(start.elapsed() < heartbeat * 4, "{:?}", start.elapsed());
    assert_eq!(server.client.get("/ready").status, 503);
    assert!(server.metric("tegula_last_step_age_seconds", &[]) >= heartbeat.as_secs_f64());
    // It was only slow: all is as before.
    drop(open);
    assert_eq!(put_together(events, false).text().len(), 20);
    server.wait_idle();
    assert_eq!(server.client.get("/health").status, 200);
}

#[test]
pub fn t43_health_is_quick_while_all_is_busy() {
    let model = scripted().step_time(Duration::from_millis(3));
    let server = Server::with(model, false, CHATML, |e| e.max_num_seqs(8).heartbeat(Duration::from_secs(2)));
    let body = completion("p", json!({ "max_tokens": 60, "ignore_eos": true }));
    let streams: Vec<_> = (0..48).map(|_| server.client.stream(COMPLETIONS, &body)).collect();
    for _ in 0..20 {
        let start = Instant::now();
        assert_eq!(server.client.get("/health").status, 200);
        assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(streams);
}

#[test]
pub fn t43_an_engine_that_cannot_go_on_says_so() {
    let model =
        scripted().before_each_step(|step, _| if step >= 3 { Step::Lose("pulled out".into()) } else { Step::Run });
    let mut server = Server::start(model);
    let body = completion("p", json!({ "max_tokens": 20, "ignore_eos": true }));
    let rest = server.client.stream(COMPLETIONS, &body).rest();
    let error = &rest.last().expect("an end")["error"];
    assert!(error["message"].is_string(), "{rest:?}");
    server.wait("it is unhealthy", || server.client.get("/health").status == 503);
    assert_eq!(server.client.get("/ready").status, 503);
    server.client.post(COMPLETIONS, &body).error(503);
    assert_eq!(server.client.get("/metrics").status, 200);
    server.broken = true;
}

#[test]
pub fn t43_a_step_that_fails_ends_its_requests_only() {
    let model =
        scripted().before_each_step(|step, _| if step == 3 { Step::Fail("a bad step".into()) } else { Step::Run });
    let server = Server::start(model);
    let body = completion("p", json!({ "max_tokens": 20, "ignore_eos": true }));
    let answer = server.client.post(COMPLETIONS, &body);
    let error = answer.error(500);
    assert!(!error.message.contains("panic"), "{}", error.message);
    assert_eq!(server.client.get("/health").status, 200);
    assert_eq!(both(&server.client, &body).finish(), "length");
}

/// Says that this process is the server of the test that started it.
const SERVES: &str = "TEGULA_TEST_SERVES";

#[test]
pub fn t44_signals() {
    if std::env::var_os(SERVES).is_some() {
        return super::child::serve();
    }
    let body = |most: usize| completion("p", json!({ "max_tokens": most, "ignore_eos": true }));
    // The first lets streams finish, and nothing new in.
    let mut child = super::child::Child::start("rows_state::t44_signals", SERVES);
    let mut streams: Vec<_> = (0..3).map(|_| child.client.stream(COMPLETIONS, &body(60))).collect();
    streams.iter_mut().for_each(|events| assert!(events.next().is_some()));
    child.signal(libc::SIGTERM);
    let start = Instant::now();
    let refused = loop {
        // Connections that are open are answered; new ones may not be taken any more.
        match child.client.try_post(COMPLETIONS, &body(1)) {
            Ok(answer) if answer.status == 200 => assert!(start.elapsed() < Duration::from_secs(2), "still served"),
            other => break other,
        }
    };
    if let Ok(answer) = refused {
        answer.error(503);
    }
    for events in streams {
        let last = events.rest().into_iter().rfind(|e| !e["choices"][0]["finish_reason"].is_null()).expect("an end");
        assert_eq!(last["choices"][0]["finish_reason"], "length");
    }
    assert_eq!(child.exit_code(), Some(0));

    // The second ends them, and says so.
    for second in [libc::SIGTERM, libc::SIGINT] {
        let mut child = super::child::Child::start("rows_state::t44_signals", SERVES);
        let mut streams: Vec<_> = (0..3).map(|_| child.client.stream(COMPLETIONS, &body(400))).collect();
        streams.iter_mut().for_each(|events| assert!(events.next().is_some()));
        child.signal(libc::SIGTERM);
        std::thread::sleep(Duration::from_millis(100));
        child.signal(second);
        for events in streams {
            let rest = events.rest();
            let error = &rest.last().expect("an end")["error"];
            assert!(error["message"].is_string() && error["code"].is_number(), "{:?}", rest.last());
        }
        assert_eq!(child.exit_code(), Some(0));
    }
}

#[test]
pub fn t44_an_idle_server_ends_at_once() {
    if std::env::var_os(SERVES).is_some() {
        return super::child::serve();
    }
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut child = super::child::Child::start("rows_state::t44_an_idle_server_ends_at_once", SERVES);
        // A connection that is open and asks for nothing keeps nobody waiting.
        let idle = child.client.connect();
        assert_eq!(child.client.get("/health").status, 200);
        let start = Instant::now();
        child.signal(signal);
        assert_eq!(child.exit_code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
        assert!(Response::try_new(idle).is_err());
    }
}
