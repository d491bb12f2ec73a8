//! Limits: of bodies, of prompts before any work is done for them, of queues.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tegula_server::ServerConfig;

use super::answers::{CHAT, COMPLETIONS, completion, message};
use super::client::Response;
use super::server::{Server, scripted};
use super::vocabulary::CHATML;

/// A body of so many bytes.
fn body_of(bytes: usize) -> Vec<u8> {
    let frame = json!({ "prompt": "" }).to_string().len();
    json!({ "prompt": "x".repeat(bytes - frame) }).to_string().into_bytes()
}

#[test]
fn a_body_has_as_many_bytes_as_it_may() {
    let server = Server::configured(scripted(), ServerConfig { max_body: 400, ..ServerConfig::default() });
    assert_eq!(server.client.send("POST", "/tokenize", &body_of(400)).ok()["count"], 400 - 13);
    let error = server.client.send("POST", "/tokenize", &body_of(401)).error(413);
    assert_eq!(error.kind, "RequestTooLargeError");
    assert!(error.message.contains("400 bytes"), "{}", error.message);
    // In chunks nobody knows before.
    for (bytes, status) in [(400, 200), (401, 413), (5000, 413)] {
        let mut request =
            b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                            transfer-encoding: chunked\r\n\r\n"
                .to_vec();
        for chunk in body_of(bytes).chunks(33) {
            request.extend(format!("{:x}\r\n", chunk.len()).bytes().chain(chunk.iter().copied()).chain(*b"\r\n"));
        }
        request.extend(b"0\r\n\r\n");
        assert_eq!(server.client.raw(&request).status, status, "{bytes}");
    }
}

/// The answer can be read although the server does not want the rest of what is sent.
#[test]
fn a_client_that_still_sends_reads_that_it_is_too_much() {
    let config = ServerConfig { max_body: 1 << 20, ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    for _ in 0..8 {
        server.client.send("POST", COMPLETIONS, &body_of(4 << 20)).error(413);
    }
    // Nor does it wait for what one only says it will send.
    for length in ["10000000000", "1048577"] {
        let start = Instant::now();
        let head = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        server.client.raw(head.as_bytes()).error(413);
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
}

#[test]
fn a_body_must_arrive() {
    let config = ServerConfig { body_timeout: Duration::from_millis(200), ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    let mut socket = server.client.connect();
    let head = "POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"pro";
    socket.write_all(head.as_bytes()).unwrap();
    let start = Instant::now();
    assert_eq!(Response::new(socket).whole().error(408).kind, "RequestTimeoutError");
    assert!((100..3000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    // One that breaks off gets no answer, and costs nothing.
    let mut socket = server.client.connect();
    socket.write_all(head.as_bytes()).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = vec![];
    let _ = socket.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&rest));
}

/// A request whose body is announced and comes in part.
fn half_sent(server: &Server, length: usize, sent: usize) -> std::net::TcpStream {
    let mut socket = server.client.connect();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(&body_of(length)[..sent]).unwrap();
    socket
}

/// Bodies that arrive have a part of the memory together, whatever they announce.
#[test]
fn bodies_that_wait_have_a_size_together() {
    let server = Server::configured(scripted(), ServerConfig { max_body: 1000, ..ServerConfig::default() });
    let announced: Vec<_> = (0..20).map(|_| half_sent(&server, 1000, 1)).collect();
    let ask = || server.client.send("POST", "/tokenize", &body_of(400));
    ask().ok();
    // Of 8,000 bytes there are 20, and room for eight of these.
    let mut held: Vec<_> = (0..9).map(|_| half_sent(&server, 1000, 995)).collect();
    let is_refused = |socket: &std::net::TcpStream| {
        socket.set_nonblocking(true).unwrap();
        socket.peek(&mut [0]).is_ok_and(|read| read > 0)
    };
    server.wait("one is refused", || held.iter().any(is_refused));
    held.retain(|socket| !is_refused(socket));
    assert_eq!(held.len(), 8);
    let refused = ask();
    assert!(refused.error(503).message.contains("8000 bytes") && refused.header("retry-after").is_some());
    held.pop();
    server.wait("room again", || ask().status == 200);
    drop((announced, held));
    server.wait("all are gone", || server.app().in_flight().count() == 0);
    for _ in 0..30 {
        ask().ok();
    }
}

#[test]
fn who_ends_waits_for_no_bodies() {
    let server = Server::start(scripted());
    let mut waiting: Vec<_> = [0, 1, 99].map(|sent| half_sent(&server, 100, sent)).into();
    server.wait("they wait", || server.app().in_flight().count() == 3);
    server.app().in_flight().end();
    let start = Instant::now();
    for socket in waiting.drain(..) {
        assert!(Response::new(socket).whole().error(503).message.contains("shutting down"));
    }
    server.wait("nobody is left", || server.app().in_flight().count() == 0);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let late = half_sent(&server, 100, 50);
    assert!(Response::new(late).whole().error(503).message.contains("shutting down"));
}

/// Work for a request grows as the request does.
#[test]
fn many_results_of_tools_are_refused_as_quickly_as_one_long_text() {
    let server = Server::start(scripted());
    let result = json!({ "role": "tool", "content": "" });
    let body = json!({ "messages": vec![result; 64_000] });
    for path in ["/tokenize", CHAT] {
        let start = Instant::now();
        assert!(server.client.post(path, &body).refuses("messages").message.contains("512 tokens"));
        assert!(start.elapsed() < Duration::from_secs(4), "{path}: {:?}", start.elapsed());
    }
}

/// T13.
#[test]
fn a_prompt_that_cannot_fit_is_refused_at_once() {
    let server = Server::start(scripted());
    let context = 512;
    let huge = "word ".repeat(1_600_000);
    let just_too_long = "x".repeat(10 * context);
    for text in [&huge, &just_too_long] {
        let asked = [
            (COMPLETIONS, completion(text.as_str(), json!({}))),
            (COMPLETIONS, completion(json!([text, "short"]), json!({ "stream": true }))),
            (CHAT, message(text, json!({}))),
            (CHAT, message(text, json!({ "stream": true }))),
            ("/tokenize", json!({ "prompt": text })),
        ];
        for (path, body) in asked {
            let start = Instant::now();
            let answer = server.client.post(path, &body);
            if path == "/tokenize" && *text == just_too_long {
                // Its tokens can be counted: perhaps somebody wants to know by how much it is too long.
                assert!([200, 400].contains(&answer.status));
                continue;
            }
            let error = answer.error(400);
            assert!(error.message.contains("512 tokens"), "{path}: {}", error.message);
            assert!(
                ["prompt", "messages"].contains(&error.param.as_deref().unwrap_or_default()),
                "{path}: {:?}",
                error.param
            );
            assert!(start.elapsed() < Duration::from_secs(3), "{path}: {:?}", start.elapsed());
        }
    }
    let ids: Vec<u32> = (0..10 * context as u32).map(|n| n % 256).collect();
    server.client.post(COMPLETIONS, &completion(ids, json!({}))).refuses("prompt");
    let usage =
        &server.client.post(COMPLETIONS, &completion("x".repeat(500), json!({ "max_tokens": 2 }))).ok()["usage"];
    assert_eq!(usage["prompt_tokens"], 500);
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let (release, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = std::sync::Mutex::new(hangs);
    let model = scripted().before_each_step(move |_, _| {
        let _ = hangs.lock().unwrap().recv();
        tegula_engine::engine::Step::Run
    });
    let server = Server::with(model, false, CHATML, |b| b.max_num_seqs(1).max_waiting(2));
    let body = completion("p", json!({ "max_tokens": 1 }));
    let ask = || server.client.request("POST", COMPLETIONS, body.to_string().as_bytes());
    let first = ask();
    server.wait("one runs", || server.engine.stats().scheduler.num_running == 1);
    let waiting = [ask(), ask()];
    server.wait("two wait", || server.engine.num_waiting() == 2);
    let refused = server.client.post(COMPLETIONS, &body);
    assert_eq!(refused.error(429).kind, "RateLimitError");
    let after: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after));
    assert_eq!(server.client.get("/health").status, 200, "a full queue is no illness");
    drop(release);
    for socket in std::iter::once(first).chain(waiting) {
        Response::new(socket).whole().ok();
    }
}

#[test]
fn requests_are_prepared_a_few_at_a_time_and_all_are_served() {
    let config = ServerConfig { max_blocking: 1, ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    std::thread::scope(|scope| {
        let ask = |n: usize| {
            let client = server.client.clone();
            move || client.post("/tokenize", &json!({ "prompt": "ab".repeat(n) })).ok()["count"].as_u64().unwrap()
        };
        let all: Vec<_> = (1..40).map(|n| (n, scope.spawn(ask(n)))).collect();
        for (n, thread) in all {
            assert_eq!(thread.join().unwrap(), 2 * n as u64);
        }
    });
}

/// T17, T23: bounds of parameters name the parameter, and others are not disturbed.
#[test]
fn parameters_have_bounds() {
    let server = Server::start(scripted());
    let ask = |more: Value| {
        server.client.post(COMPLETIONS, &completion("p", super::answers::with(json!({ "max_tokens": 2 }), more)))
    };
    ask(json!({ "top_p": 1.0 })).ok();
    for bad in [json!(0.0), json!(1.01), json!(-0.1), json!("1"), json!([1]), json!(1e300)] {
        ask(json!({ "top_p": bad })).refuses("top_p");
    }
    for bad in [
        json!({ "999999": 1 }),
        json!({ "-1": 1 }),
        json!({ "abc": 1 }),
        json!({ "5": 1e30 }),
        json!({ "5": "x" }),
        json!([5]),
    ] {
        ask(json!({ "logit_bias": bad })).refuses("logit_bias");
    }
    ask(json!({ "logit_bias": { "5": 100, "6": -100.0 } })).ok();
}
