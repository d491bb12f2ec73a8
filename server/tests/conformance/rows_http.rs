//! Further cases, of HTTP itself: requests that are odd, wrong or hostile. Whatever comes, the answer is one that HTTP
//! allows, an error has OpenAI's body, and the next request is served.

use std::io::{BufReader, Read, Write};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tegula_server::ServerConfig;

use super::answers::{CHAT, COMPLETIONS, ask, completion, message, streamed};
use super::client::Response;
use super::server::{Server, scripted};
use super::vocabulary::bytes;

fn ok() -> Server {
    Server::start(scripted().answers(&bytes("ok")))
}

/// The next request is served.
#[track_caller]
fn alive(server: &Server) {
    assert_eq!(ask(&server.client, &completion("p", json!({}))).text(), "ok");
}

/// A POST of this body, with further header lines.
fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut all = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    all.extend(body);
    all
}

#[test]
fn bodies_that_are_no_request() {
    let server = ok();
    let deep_object = "{\"a\":".repeat(100_000);
    let bodies: [&[u8]; 22] = [
        b"",
        b" ",
        b"{",
        b"}",
        b"[]",
        b"5",
        b"null",
        b"\"x\"",
        b"{}{}",
        b"{\"prompt\":\"p\"} x",
        b"{\"prompt\":\"p\",}",
        b"{'prompt':'p'}",
        b"{\"prompt\":\"p\",\"temperature\":NaN}",
        b"{\"prompt\":\"p\",\"temperature\":Infinity}",
        b"{\"prompt\":\"p\",\"temperature\":1e999}",
        b"{\"prompt\":\"\xff\xfe\"}",
        b"{\"prompt\":\"\\ud800\"}",
        b"{\"prompt\":\"a\nb\"}",
        b"{\"prompt\":\"p\",\"max_tokens\":0x10}",
        b"\xef\xbb\xbf{\"prompt\":\"p\"}",
        b"prompt=p&max_tokens=1",
        deep_object.as_bytes(),
    ];
    for body in bodies {
        for path in [COMPLETIONS, CHAT, "/tokenize", "/detokenize", "/inference/v1/generate"] {
            let answer = server.client.send("POST", path, body);
            assert_eq!(answer.status, 400, "{path} {:?}", String::from_utf8_lossy(&body[..body.len().min(60)]));
            answer.error(400);
        }
    }
    alive(&server);
}

#[test]
fn a_parameter_given_twice() {
    let server = ok();
    // Two programs may take one or the other: neither is right.
    let body = br#"{"prompt":"p","max_tokens":1,"max_tokens":2}"#;
    let error = server.client.send("POST", COMPLETIONS, body).error(400);
    assert!(error.message.contains("max_tokens"), "{}", error.message);
    let body = br#"{"messages":[{"role":"user","role":"system","content":"q"}]}"#;
    let error = server.client.send("POST", CHAT, body).error(400);
    assert!(error.message.contains("role"), "{}", error.message);
    alive(&server);
}

#[test]
fn numbers_of_every_size() {
    let server = ok();
    let huge = "9".repeat(5000);
    for number in [
        "1e308",
        "-1e308",
        "1e-400",
        "-0",
        "-0.0",
        "00",
        "1.",
        ".5",
        "+1",
        "1e",
        &huge,
        "0.1e1",
        "1E2",
        "18446744073709551616",
    ] {
        for name in ["temperature", "max_tokens", "seed", "n", "top_k", "min_p"] {
            let body = format!("{{\"prompt\":\"p\",\"{name}\":{number}}}");
            let answer = server.client.send("POST", COMPLETIONS, body.as_bytes());
            match answer.status {
                200 => drop(answer.ok()),
                status => drop((answer.error(400), status)),
            }
        }
    }
    alive(&server);
}

#[test]
fn methods_and_paths() {
    let server = ok();
    for path in [
        "/v1/nothing",
        "/",
        "/v1",
        "/v1/chat/completions/",
        "//v1/models",
        "/v1/embeddings",
        "/v1/completions%00",
        "/v1/models/%ff%00",
        "/../etc/passwd",
    ] {
        let answer = server.client.get(path);
        if path != "/" {
            answer.error(404);
        }
    }
    for (method, path) in [
        ("GET", COMPLETIONS),
        ("PUT", COMPLETIONS),
        ("DELETE", CHAT),
        ("POST", "/health"),
        ("POST", "/v1/models"),
        ("PATCH", "/tokenize"),
    ] {
        let answer = server.client.send(method, path, b"");
        answer.error(405);
        assert!(answer.header("allow").is_some(), "{method} {path} says what is allowed");
    }
    for path in ["/health", "/v1/models", "/metrics"] {
        let mut socket = server.client.request("HEAD", path, b"");
        let mut all = String::new();
        socket.read_to_string(&mut all).expect("a head");
        assert!(all.starts_with("HTTP/1.1 200") && all.ends_with("\r\n\r\n"), "HEAD {path}: {all:?}");
    }
    let odd = server.client.raw(b"BREW /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    odd.error(405);
    alive(&server);
}

#[test]
fn other_origins_may_ask_if_they_are_allowed_to() {
    let config = ServerConfig { allowed_origins: vec!["http://page.example".into()], ..ServerConfig::default() };
    let server = Server::configured(scripted().answers(&bytes("ok")), config);
    let preflight = server.client.raw(
        b"OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\norigin: http://page.example\r\n\
          access-control-request-method: POST\r\naccess-control-request-headers: authorization,content-type\r\n\r\n",
    );
    assert!([200, 204].contains(&preflight.status), "{}", preflight.status);
    assert!(preflight.header("access-control-allow-origin").is_some(), "{preflight:?}");
    let allowed = preflight.header("access-control-allow-headers").expect("headers").to_ascii_lowercase();
    assert!(allowed == "*" || allowed.contains("content-type"), "{allowed}");
    let answer =
        server.client.with("origin", "http://page.example").post(COMPLETIONS, &completion("p", json!({ "x": 1 })));
    assert!(answer.header("access-control-allow-origin").is_some());
    let exposed = answer.header("access-control-expose-headers").unwrap_or_default().to_ascii_lowercase();
    assert!(exposed == "*" || exposed.contains("x-ignored-parameters"), "{exposed:?}");
    // Nobody else is, and nobody at all unless that is said.
    let other = server.client.with("origin", "http://other.example").get("/v1/models");
    assert_ne!(other.header("access-control-allow-origin"), Some("http://other.example"));
    let closed = ok().client.with("origin", "http://page.example").get("/v1/models");
    assert!(closed.header("access-control-allow-origin").is_none());
}

#[test]
fn types_of_content() {
    let server = ok();
    let body = completion("p", json!({})).to_string();
    for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON"] {
        let answer = server.client.raw(&post(COMPLETIONS, &format!("content-type: {kind}\r\n"), body.as_bytes()));
        assert_eq!(answer.status, 200, "{kind}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "image/png"] {
        let answer = server.client.raw(&post(COMPLETIONS, &format!("content-type: {kind}\r\n"), body.as_bytes()));
        answer.error(415);
    }
    // Compressed bodies are not understood, and not taken for something else.
    let answer = server.client.raw(&post(
        COMPLETIONS,
        "content-type: application/json\r\ncontent-encoding: gzip\r\n",
        b"\x1f\x8b\x08\0",
    ));
    assert!([400, 415].contains(&answer.status));
    alive(&server);
}

#[test]
fn bodies_in_chunks() {
    let server = ok();
    let body = completion("p", json!({})).to_string();
    let chunked = |chunks: &[&str]| {
        let mut all = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        for chunk in chunks {
            all += &format!("{:x};name=value\r\n{chunk}\r\n", chunk.len());
        }
        all + "0\r\n\r\n"
    };
    let single: Vec<&str> = body.split_inclusive(|_| true).collect();
    assert_eq!(server.client.raw(chunked(&single).as_bytes()).status, 200);
    assert_eq!(server.client.raw(chunked(&[&body]).as_bytes()).status, 200);
    server.client.raw(chunked(&[]).as_bytes()).error(400);
    // Larger than allowed, without saying so before.
    let large = "x".repeat(1 << 20);
    let many: Vec<&str> = std::iter::repeat_n(&large[..], server.max_body / large.len() + 2).collect();
    server.client.raw(chunked(&many).as_bytes()).error(413);
    // No chunks at all, and two lengths: whoever reads these in another way must not be led astray.
    for bad in ["zz\r\n", "-1\r\n\r\n", "ffffffffffffffffff\r\n"] {
        let head = format!(
            "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{bad}"
        );
        if let Ok(answer) = server.client.try_raw(head.as_bytes()) {
            assert_eq!(answer.status / 100, 4, "{bad:?}");
        }
    }
    alive(&server);
}

#[test]
fn several_requests_on_one_connection() {
    let server = ok();
    let body = completion("p", json!({})).to_string();
    let one = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let get = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let bad = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1\r\n\r\n{";
    // All at once, without waiting for answers: they come in order.
    let mut socket = server.client.connect();
    socket.write_all(format!("{one}{get}{bad}{one}").as_bytes()).expect("sent");
    let mut reader = BufReader::new(socket);
    for expected in [200, 200, 400, 200] {
        let (answer, rest) = Response::read(reader).expect("an answer").keep();
        assert_eq!(answer.status, expected);
        reader = rest;
    }
    // One after the other, streams among them.
    let stream = one.replace("\"prompt\"", "\"stream\":true,\"prompt\"");
    let stream =
        stream.replace(&format!("content-length: {}", body.len()), &format!("content-length: {}", body.len() + 14));
    for (i, request) in [&one, &stream, &one, &stream].into_iter().enumerate() {
        reader.get_mut().write_all(request.as_bytes()).expect("sent");
        let (answer, rest) = Response::read(reader).unwrap_or_else(|e| panic!("request {i}: {e}")).keep();
        assert_eq!(answer.status, 200, "request {i}");
        reader = rest;
    }
}

#[test]
fn heads_that_are_too_much() {
    let server = ok();
    let many: String = (0..5000).map(|i| format!("x-{i}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(1 << 20));
    let path = format!("/{}", "p".repeat(1 << 20));
    for head in [
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n"),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{long}\r\n"),
        format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    ] {
        if let Ok(answer) = server.client.try_raw(head.as_bytes()) {
            assert_eq!(answer.status / 100, 4, "{}", answer.status);
        }
    }
    for junk in [
        &b"\0\0\0\0\r\n\r\n"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
    ] {
        let mut socket = server.client.connect();
        let _ = socket.write_all(junk);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut all = vec![];
        let _ = socket.read_to_end(&mut all);
        assert!(
            all.is_empty() || all.starts_with(b"HTTP/1.1 4") || all.starts_with(b"HTTP/1.1 505"),
            "{junk:?}: {}",
            String::from_utf8_lossy(&all)
        );
    }
    alive(&server);
}

#[test]
fn slow_and_silent_clients_hold_nobody_up() {
    let server = ok();
    // Some say nothing, some only half of a request.
    let silent: Vec<_> = (0..40).map(|_| server.client.connect()).collect();
    let half: Vec<_> = (0..40)
        .map(|_| {
            let mut socket = server.client.connect();
            socket
                .write_all(b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"pro")
                .expect("sent");
            socket
        })
        .collect();
    let start = Instant::now();
    alive(&server);
    assert!(start.elapsed() < Duration::from_secs(2));
    // One that reads byte by byte gets all of it.
    let mut slow = server.client.stream(CHAT, &message("p", json!({})));
    std::thread::sleep(Duration::from_millis(50));
    assert!(slow.next().is_some());
    drop((silent, half));
}

#[test]
fn readers_that_do_not_read_delay_nobody() {
    let server = Server::start(scripted());
    let body =
        completion("p", json!({ "max_tokens": 500, "ignore_eos": true, "n": 16, "temperature": 1, "logprobs": 5 }));
    let lazy: Vec<_> = (0..4).map(|_| server.client.stream(COMPLETIONS, &body)).collect();
    let start = Instant::now();
    let reply = streamed(&server.client, &completion("p", json!({ "max_tokens": 20 })));
    assert_eq!(reply.finish(), "length");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(lazy);
}

#[test]
fn expectations_and_upgrades() {
    let server = ok();
    let body = completion("p", json!({})).to_string();
    let mut socket = server.client.connect();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).expect("sent");
    let mut line = [0; 25];
    socket.read_exact(&mut line).expect("leave to go on");
    assert_eq!(&line, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(body.as_bytes()).expect("sent");
    assert_eq!(Response::new(socket).whole().status, 200);
    let upgrade = server
        .client
        .raw(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, close\r\nupgrade: websocket\r\n\r\n");
    assert_eq!(upgrade.status, 200, "what is not known is left aside");
    alive(&server);
}

#[test]
fn texts_of_all_kinds_come_back() {
    let server = Server::start(scripted());
    for text in [
        "\0",
        "\u{feff}x",
        "\u{202e}abc",
        "e\u{301}\u{301}\u{301}",
        "👩‍👩‍👧‍👦",
        "\u{10ffff}",
        "<|im_end|>",
        "{{ 7*7 }}{% raw %}",
        "\\u0000",
        "%s%n",
        "a\r\nb",
    ] {
        let echo = ask(
            &server.client,
            &completion(text, json!({ "echo": true, "max_tokens": 0, "skip_special_tokens": false })),
        );
        assert_eq!(echo.text(), text);
        assert_eq!(ask(&server.client, &message(text, json!({ "max_tokens": 3 }))).usage("completion_tokens"), 3);
    }
    let name = Value::from("x".repeat(100_000));
    let error = server.client.post(COMPLETIONS, &completion("p", json!({ "model": name }))).error(404);
    assert!(error.message.len() < 1000, "an error does not repeat all that it was sent");
    let error = server
        .client
        .post(COMPLETIONS, &completion("p", json!({ "temperature": "y".repeat(100_000) })))
        .refuses("temperature");
    assert!(error.message.len() < 1000, "{} bytes", error.message.len());
}

#[test]
fn many_requests_with_many_cancels() {
    let server = Server::start(scripted().step_time(Duration::from_micros(200)));
    let alone: Vec<String> = (0..8).map(|i| ask(&server.client, &body(i)).text().to_owned()).collect();
    fn body(i: usize) -> Value {
        completion(format!("prompt {i}"), json!({ "max_tokens": 40 + 10 * i, "ignore_eos": true }))
    }
    std::thread::scope(|scope| {
        for worker in 0..16 {
            let (server, alone) = (&server, &alone);
            scope.spawn(move || {
                for round in 0..6 {
                    let i = (worker * 7 + round * 3) % 8;
                    if (worker + round) % 2 == 0 {
                        let mut events = server.client.stream(COMPLETIONS, &body(i));
                        let _ = events.by_ref().take((worker * round) % 30).count();
                        events.vanish();
                    } else {
                        assert_eq!(streamed(&server.client, &body(i)).text(), alone[i]);
                    }
                }
            });
        }
    });
    server.wait_idle();
}
