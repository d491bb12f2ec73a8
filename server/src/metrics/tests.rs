use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_service::Service;

use super::*;

/// Values by `name{labels}`.
fn scrape(metrics: &HttpMetrics) -> BTreeMap<String, f64> {
    let text = metrics.text();
    let values = text.lines().filter(|line| !line.starts_with('#'));
    values.map(|line| line.rsplit_once(' ').unwrap()).map(|(key, value)| (key.into(), value.parse().unwrap())).collect()
}

/// An app with a route of each kind, behind the layer.
fn app(metrics: &Arc<HttpMetrics>) -> Router {
    let pieces = || tokio_stream::iter(["data: a\n\n", "data: bc\n\n"].map(Ok::<_, Infallible>));
    Router::new()
        .route("/echo/{name}", post(|body: Bytes| async move { body }))
        .route("/stream", get(move || async move { Body::from_stream(pieces()) }))
        .route("/wrong", get(|| async { StatusCode::BAD_GATEWAY }))
        .route("/slow", get(|| async { tokio::time::sleep(Duration::from_secs(60)).await }))
        .route("/broken", get(|| async { assert!(is_right(), "a handler that panics") }))
        .route("/health", get(|| async {}))
        .layer(axum::middleware::from_fn_with_state(metrics.clone(), observe))
        .layer(CatchPanicLayer::new())
}

/// False, which the compiler does not know.
fn is_right() -> bool {
    HttpMetrics::new().text().is_empty()
}

/// An answer of the app, in the process.
async fn call(app: &Router, method: &str, path: &str, body: &'static str) -> Response {
    let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
    let Ok(response) = app.clone().call(request).await;
    response
}

async fn drain(response: Response) -> Bytes {
    to_bytes(response.into_body(), usize::MAX).await.unwrap()
}

#[tokio::test]
async fn requests_are_counted_by_path_method_and_class_of_status() {
    let metrics = Arc::new(HttpMetrics::new());
    let app = app(&metrics);
    // The path is that of the route, whatever stands in its place: clients cannot make labels.
    assert_eq!(drain(call(&app, "POST", "/echo/one", "hello").await).await, "hello");
    assert_eq!(drain(call(&app, "POST", "/echo/two", "more").await).await, "more");
    drain(call(&app, "GET", "/wrong", "").await).await;
    drain(call(&app, "PUT", "/wrong", "").await).await;
    drain(call(&app, "BREW", "/wrong", "").await).await;
    drain(call(&app, "GET", "/broken", "").await).await;
    drain(call(&app, "GET", "/nowhere/at/all", "").await).await;
    drain(call(&app, "GET", "/health", "").await).await;
    let found = scrape(&metrics);
    let count = |handler: &str, method: &str, status: &str| {
        found[&format!("http_requests_total{{handler=\"{handler}\",method=\"{method}\",status=\"{status}\"}}")]
    };
    assert_eq!(count("/echo/{name}", "POST", "2xx"), 2.0);
    assert_eq!(count("/wrong", "GET", "5xx"), 1.0);
    assert_eq!(count("/wrong", "PUT", "4xx"), 1.0);
    assert_eq!(count("/wrong", "other", "4xx"), 1.0);
    assert_eq!(count("/broken", "GET", "5xx"), 1.0);
    assert_eq!(count("none", "GET", "4xx"), 1.0);
    assert_eq!(found.keys().filter(|key| key.starts_with("http_requests_total")).count(), 6, "no probe: {found:?}");
    assert_eq!(found["http_request_size_bytes_sum{handler=\"/echo/{name}\"}"], 9.0);
    assert_eq!(found["http_request_size_bytes_count{handler=\"/echo/{name}\"}"], 2.0);
    assert_eq!(found["http_response_size_bytes_sum{handler=\"/echo/{name}\"}"], 9.0);
    assert_eq!(found["http_request_duration_seconds_count{handler=\"/echo/{name}\",method=\"POST\"}"], 2.0);
    assert_eq!(found["http_request_duration_highr_seconds_count"], 7.0);
}

#[tokio::test]
async fn a_stream_lasts_as_long_as_it_flows() {
    let metrics = Arc::new(HttpMetrics::new());
    let app = app(&metrics);
    let response = call(&app, "GET", "/stream", "").await;
    let mut pieces = response.into_body().into_data_stream();
    assert_eq!(pieces.next().await.unwrap().unwrap(), "data: a\n\n");
    let found = scrape(&metrics);
    // It is counted, and has no end yet.
    assert_eq!(found["http_requests_total{handler=\"/stream\",method=\"GET\",status=\"2xx\"}"], 1.0);
    assert_eq!(found["http_request_duration_highr_seconds_count"], 0.0);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(pieces.next().await.unwrap().unwrap(), "data: bc\n\n");
    assert!(pieces.next().await.is_none());
    drop(pieces);
    let found = scrape(&metrics);
    assert_eq!(found["http_response_size_bytes_sum{handler=\"/stream\"}"], 19.0);
    assert!(found["http_request_duration_highr_seconds_sum"] >= 0.05, "{found:?}");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_is_counted_once() {
    let metrics = Arc::new(HttpMetrics::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(&metrics);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(client);
    let key = "http_requests_total{handler=\"/slow\",method=\"GET\",status=\"4xx\"}";
    for _ in 0..100 {
        if scrape(&metrics).contains_key(key) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let found = scrape(&metrics);
    assert_eq!((found[key], found["http_request_duration_highr_seconds_count"]), (1.0, 1.0));
    server.abort();
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_is_shown_as_it_is() {
    let metrics = HttpMetrics::new();
    let found = scrape(&metrics);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let ratio = found["process_resident_memory_bytes"] / (kilobytes * 1024.0);
    assert!((0.5..2.0).contains(&ratio), "{found:?}, and {line}");
    assert!(found["process_open_fds"] >= 3.0 && found["process_open_fds"] <= found["process_max_fds"], "{found:?}");
}
