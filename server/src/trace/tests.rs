use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::{Span, status};
use prost::Message;
use tegula_engine::engine::{SampleEnd, Times};
use tegula_engine::metrics::Asked;
use tegula_engine::sampling::SamplingParams;

use super::*;

/// A collector: answers every request with this status, and passes on its path, its content type and its body.
fn collector(status: &'static str) -> (String, Receiver<(String, String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let path = line.split(' ').nth(1).unwrap().to_owned();
            let (mut length, mut kind) = (0, String::new());
            loop {
                line.clear();
                stream.read_line(&mut line).unwrap();
                match line.trim_end().split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.parse().unwrap()
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("content-type") => kind = value.to_owned(),
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            if sender.send((path, kind, body)).is_err() {
                break;
            }
        }
    });
    (address, received)
}

fn asked(traceparent: Option<&str>) -> Asked {
    let params =
        SamplingParams { n: 2, max_tokens: Some(9), temperature: 0.5, top_p: 0.25, ..SamplingParams::default() };
    Asked::new("cmpl-7", 40, &params, traceparent)
}

fn end(reason: FinishReason) -> SampleEnd {
    let arrival = Instant::now() - Duration::from_secs(2);
    let at = |ms: u64| arrival + Duration::from_millis(ms);
    SampleEnd {
        sample: 1,
        reason,
        stop: None,
        text: "a secret".into(),
        num_output_tokens: 6,
        num_preemptions: 3,
        error: (reason == FinishReason::Error).then(|| "the step failed".into()),
        times: Times {
            arrival,
            queued: at(250),
            scheduled: Some(at(500)),
            first_token: Some(at(750)),
            last_token: Some(at(1250)),
            finished: at(1500),
        },
    }
}

/// The spans of a body, and the service that they are from.
fn spans(body: &[u8]) -> (Vec<Span>, String) {
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    let resource = request.resource_spans[0].resource.clone().unwrap();
    let service = attribute(&resource.attributes, "service.name").unwrap();
    (request.resource_spans.into_iter().flat_map(|r| r.scope_spans).flat_map(|s| s.spans).collect(), service)
}

/// An attribute as text.
fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let text = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::DoubleValue(number) => format!("{number:.3}"),
        other => format!("{other:?}"),
    };
    attributes.iter().find(|a| a.key == key)?.value.as_ref()?.value.as_ref().map(text)
}

#[test]
fn a_request_is_a_span_with_its_times_and_counts() {
    let (address, received) = collector("200 OK");
    let exporter = Spans::otlp(&address, "tiny").unwrap();
    let asked = asked(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    let end = end(FinishReason::Length);
    let before = SystemTime::now();
    exporter.ended(&Ended { asked: &asked, end: &end, num_cached_tokens: 16, longest: Some(6) });
    exporter.flush().unwrap();

    let (path, kind, body) = received.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!((path.as_str(), kind.as_str()), ("/v1/traces", "application/x-protobuf"));
    assert!(!body.windows(6).any(|part| part == b"secret"), "no texts");
    let (spans, service) = spans(&body);
    assert_eq!(service, "tegula");
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!(span.name, "llm_request");
    assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(span.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(span.end_time_unix_nano - span.start_time_unix_nano, 1_500_000_000);
    // It began two seconds before it was reported.
    let start = SystemTime::UNIX_EPOCH + Duration::from_nanos(span.start_time_unix_nano);
    let age = before.duration_since(start).unwrap();
    assert!(age >= Duration::from_millis(1900) && age < Duration::from_secs(4), "{age:?}");
    let events: Vec<(&str, u64)> = span
        .events
        .iter()
        .map(|e| (e.name.as_str(), (e.time_unix_nano - span.start_time_unix_nano) / 1_000_000))
        .collect();
    assert_eq!(events, [("QUEUED", 250), ("SCHEDULED", 500), ("NEW_TOKENS", 750)]);
    for (key, expected) in [
        ("gen_ai.response.model", "tiny"),
        ("gen_ai.request.id", "cmpl-7"),
        ("gen_ai.request.n", "2"),
        ("gen_ai.request.max_tokens", "9"),
        ("gen_ai.request.temperature", "0.500"),
        ("gen_ai.request.top_p", "0.250"),
        ("gen_ai.usage.prompt_tokens", "40"),
        ("gen_ai.usage.completion_tokens", "6"),
        ("gen_ai.latency.time_in_queue", "0.250"),
        ("gen_ai.latency.time_to_first_token", "0.750"),
        ("gen_ai.latency.e2e", "1.500"),
        ("gen_ai.latency.time_in_model_prefill", "0.250"),
        ("gen_ai.latency.time_in_model_decode", "0.500"),
        ("gen_ai.latency.time_in_model_inference", "0.750"),
        ("tegula.sample", "1"),
        ("tegula.cached_tokens", "16"),
        ("tegula.preemptions", "3"),
    ] {
        assert_eq!(attribute(&span.attributes, key).as_deref(), Some(expected), "{key}");
    }
    let reasons = attribute(&span.attributes, "gen_ai.response.finish_reasons").unwrap();
    assert!(reasons.contains("length"), "{reasons}");
}

#[test]
fn without_a_caller_a_trace_begins_and_one_that_is_not_recorded_stays_so() {
    let (address, received) = collector("200 OK");
    let exporter = Spans::otlp(&format!("{address}/v1/traces"), "tiny").unwrap();
    let (alone, fault) = (asked(None), end(FinishReason::Error));
    let unsampled = asked(Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"));
    exporter.ended(&Ended { asked: &unsampled, end: &fault, num_cached_tokens: 0, longest: None });
    exporter.ended(&Ended { asked: &alone, end: &fault, num_cached_tokens: 0, longest: None });
    // What waits is sent at the end.
    drop(exporter);
    let (spans, _) = spans(&received.recv_timeout(Duration::from_secs(10)).unwrap().2);
    let [span] = &spans[..] else { panic!("{spans:?}") };
    assert!(span.parent_span_id.is_empty() && span.trace_id.iter().any(|byte| *byte != 0));
    let status = span.status.clone().unwrap();
    assert_eq!((status.code, status.message.as_str()), (status::StatusCode::Error as i32, "the step failed"));
}

#[test]
fn nothing_waits_for_a_collector_that_is_away() {
    // Nobody listens there any more.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let exporter = Spans::otlp(&format!("http://{address}"), "tiny").unwrap();
    let (asked, end) = (asked(None), end(FinishReason::Stop));
    let started = Instant::now();
    // More than the queue holds.
    for _ in 0..5000 {
        exporter.ended(&Ended { asked: &asked, end: &end, num_cached_tokens: 0, longest: None });
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[test]
fn an_address_is_checked_and_completed() {
    for (given, whole) in [
        ("http://localhost:4318", "http://localhost:4318/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/v1/traces"),
        ("https://a.example/otlp/v1/traces", "https://a.example/otlp/v1/traces"),
    ] {
        assert_eq!(address(given).unwrap(), whole);
    }
    for wrong in ["", "localhost:4318", "grpc://localhost:4317", "http://", "no address"] {
        let error = address(wrong).unwrap_err();
        assert!(error.contains("http://localhost:4318") && error.contains(&format!("found `{wrong}`")), "{error}");
    }
}
