//! `/metrics`, and what observers are told of requests.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tegula_engine::metrics::{Ended, Observer};
use tegula_server::ServerConfig;
use tegula_server::trace::Spans;

use super::answers::{COMPLETIONS, completion};
use super::server::{Server, scripted};
use super::vocabulary::CHATML;

#[test]
fn they_are_text_that_prometheus_takes() {
    let server = Server::start(scripted());
    server.client.post(COMPLETIONS, &completion("p", json!({ "max_tokens": 3, "ignore_eos": true }))).ok();
    let answer = server.client.get("/metrics");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = answer.text();
    assert!(text.ends_with('\n'));
    let (mut families, mut series) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(rest.split(' ').next().unwrap()), "twice: {line}");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok() && series.insert(name), "{line}");
            let family = name.split('{').next().unwrap();
            let of = |suffix: &str| family.strip_suffix(suffix).is_some_and(|family| families.contains(family));
            assert!(families.contains(family) || of("_bucket") || of("_sum") || of("_count"), "no type: {line}");
        }
    }
    for family in ["vllm:num_requests_running", "vllm:time_to_first_token_seconds", "http_requests_total"] {
        assert!(families.contains(family), "{family}");
    }
    assert!(text.contains("model_name=\"test-model\""));
}

#[test]
fn a_server_that_is_loading_has_those_of_http() {
    let server = tegula_server::Server::bind("127.0.0.1:0", ServerConfig::default()).unwrap().start().unwrap();
    let client = super::client::Client::new(server.addr());
    client.get("/v1/models").error(503);
    let answer = client.get("/metrics");
    assert_eq!(answer.status, 200);
    let text = answer.text();
    assert!(text.contains("http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"5xx\"} 1\n"), "{text}");
    assert!(!text.contains("vllm:"), "{text}");
}

#[test]
fn requests_are_counted_by_route_and_status() {
    let server = Server::start(scripted());
    let body = |n: usize| completion("p", json!({ "max_tokens": n, "ignore_eos": true }));
    server.client.post(COMPLETIONS, &body(2)).ok();
    let rest = server.client.stream(COMPLETIONS, &body(5)).rest();
    assert!(!rest.is_empty());
    server.client.post(COMPLETIONS, &body(0)).error(400);
    server.client.get("/no/such/path").error(404);
    server.client.get("/health");
    let at = ["handler=\"/v1/completions\""];
    server.wait("all have ended", || server.metric("http_request_duration_seconds_count", &at) == 3.0);
    let count = |labels: &[&str]| server.metric("http_requests_total", labels);
    assert_eq!(count(&[at[0], "method=\"POST\"", "status=\"2xx\""]), 2.0);
    assert_eq!(count(&[at[0], "method=\"POST\"", "status=\"4xx\""]), 1.0);
    assert_eq!(count(&["handler=\"none\"", "status=\"4xx\""]), 1.0);
    assert_eq!(count(&[]), 4.0, "probes are not counted");
    let sent: usize = [2, 5, 0].map(|n| body(n).to_string().len()).iter().sum::<usize>() + ",\"stream\":true".len();
    assert_eq!(server.metric("http_request_size_bytes_sum", &at), sent as f64);
}

/// Names and parents of requests, as observers are told.
#[derive(Default)]
struct Book(Mutex<Vec<(String, Option<String>)>>);

impl Observer for Book {
    fn ended(&self, ended: &Ended<'_>) {
        let trace = ended.asked.trace.map(|trace| trace.to_string());
        self.0.lock().unwrap().push((ended.asked.id.clone(), trace));
    }
}

#[test]
fn requests_have_the_names_and_parents_that_their_callers_gave() {
    let book = Arc::new(Book::default());
    let observer = book.clone();
    let server = Server::with(scripted(), false, CHATML, |engine| engine.observer(observer));
    let body = completion("p", json!({ "max_tokens": 2 }));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let named = server.client.with("x-request-id", "mine").with("traceparent", parent).post(COMPLETIONS, &body);
    assert_eq!(named.ok()["id"], "cmpl-mine");
    let other = server.client.with("traceparent", "no parent").post(COMPLETIONS, &body).ok();
    let seen = book.0.lock().unwrap();
    assert_eq!(seen[0], ("cmpl-mine".to_owned(), Some(parent.to_owned())));
    assert_eq!(seen[1], (other["id"].as_str().unwrap().to_owned(), None));
    assert_eq!(seen.len(), 2);
}

/// The body of the one request that a collector gets.
fn collected(listener: &TcpListener) -> Vec<u8> {
    let mut stream = BufReader::new(listener.accept().unwrap().0);
    let mut length = 0;
    for line in stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty()) {
        assert!(!line.starts_with("POST ") || line == "POST /v1/traces HTTP/1.1", "{line}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    body
}

#[test]
fn a_request_becomes_a_span_at_the_collector() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spans = Arc::new(Spans::otlp(&format!("http://{}", listener.local_addr().unwrap()), "test-model").unwrap());
    let observer = spans.clone();
    let server = Server::with(scripted(), false, CHATML, |engine| engine.observer(observer));
    let body = completion("a word of the prompt", json!({ "max_tokens": 2, "request_id": "mine" }));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    server.client.with("traceparent", parent).post(COMPLETIONS, &body).ok();
    let collector = std::thread::spawn(move || collected(&listener));
    spans.flush().unwrap();
    let body = collector.join().unwrap();
    let has = |part: &[u8]| body.windows(part.len()).any(|window| window == part);
    assert!(has(b"llm_request") && has(b"cmpl-mine") && has(b"gen_ai.latency.time_to_first_token"));
    assert!(has(&0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes()), "the caller's trace");
    assert!(has(&0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()), "the caller's span");
    assert!(!has(b"word of the prompt"));
}
