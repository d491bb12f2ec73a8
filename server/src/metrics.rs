//! `GET /metrics`, and what there is to say about the process (`process_resident_memory_bytes` and the like) and about HTTP
//! itself: requests by path, method and status, how long they take and how large they are. Named as vLLM's server names
//! them.
//!
//! A request is counted when its answer begins. Its duration and sizes are known when the last byte of the answer has been
//! taken, or nobody wants it any more: a stream lasts as long as it flows. Bytes are counted as they pass.
//! Probes (`/health` and the like, `/metrics` itself) are not counted; a path that nothing serves is `none`.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::{Frame, SizeHint};
use prometheus::core::Collector;
#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use tegula_engine::metrics::CONTENT_TYPE;

use crate::state::App;

/// Paths that are asked for by machines every few seconds.
const PROBES: [&str; 5] = ["/health", "/ready", "/metrics", "/version", "/server_info"];

/// Seconds of a request, where there is a series for each path.
const SECONDS: &[f64] = &[0.1, 0.5, 1.0];

/// Seconds of a request, where there is one series for all.
const FINE_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 7.5, 10.0, 30.0, 60.0,
];

/// Bytes of a body.
const BYTES: &[f64] = &[1e2, 1e3, 1e4, 1e5, 1e6, 1e7];

/// The metrics of one server.
pub struct HttpMetrics {
    registry: Registry,
    requests: IntCounterVec,
    duration: HistogramVec,
    fine_duration: Histogram,
    request_size: HistogramVec,
    response_size: HistogramVec,
}

impl Default for HttpMetrics {
    fn default() -> HttpMetrics {
        HttpMetrics::new()
    }
}

impl HttpMetrics {
    /// All at zero.
    pub fn new() -> HttpMetrics {
        let registry = Registry::new();
        #[cfg(target_os = "linux")]
        // It is refused only where it is already.
        let _ = registry.register(Box::new(ProcessCollector::for_self()));
        let requests = Opts::new("http_requests_total", "Requests, by path, method and class of status.");
        let histogram = |name: &str, help: &str, buckets: &[f64], labels: &[&str]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            add(&registry, HistogramVec::new(opts, labels))
        };
        let fine =
            HistogramOpts::new("http_request_duration_highr_seconds", "Until the end of the answer, of all paths.");
        HttpMetrics {
            requests: add(&registry, IntCounterVec::new(requests, &["handler", "method", "status"])),
            duration: histogram(
                "http_request_duration_seconds",
                "Until the end of the answer, by path and method.",
                SECONDS,
                &["handler", "method"],
            ),
            fine_duration: add(&registry, Histogram::with_opts(fine.buckets(FINE_SECONDS.to_vec()))),
            request_size: histogram("http_request_size_bytes", "Bytes of requests' bodies.", BYTES, &["handler"]),
            response_size: histogram("http_response_size_bytes", "Bytes of answers' bodies.", BYTES, &["handler"]),
            registry,
        }
    }

    /// All of it as Prometheus' text format 0.0.4.
    pub fn text(&self) -> String {
        // It fails for families without a metric, which are not gathered.
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// Names are those above, valid and distinct; a test makes them all.
fn add<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let valid = "names of metrics are valid and distinct";
    let family = made.expect(valid);
    registry.register(Box::new(family.clone())).expect(valid);
    family
}

/// `GET /metrics`: those of the engine, once there is one, and those of HTTP. Nobody is waited for.
pub async fn scrape(State(app): State<App>) -> impl IntoResponse {
    let engine = app.engine().map(|engine| engine.metrics().text()).unwrap_or_default();
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], engine + &app.http().text())
}

/// The layer that counts: for [`axum::middleware::from_fn_with_state`].
pub async fn observe(State(metrics): State<Arc<HttpMetrics>>, request: Request, next: Next) -> Response {
    let handler = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    if PROBES.contains(&handler.as_str()) {
        return next.run(request).await;
    }
    let exchange = Exchange {
        metrics,
        handler,
        method: method(request.method()),
        started: Instant::now(),
        answered: false,
        request_bytes: Arc::default(),
        response_bytes: Arc::default(),
    };
    let (parts, body) = request.into_parts();
    let body = Body::new(Counted { body, bytes: exchange.request_bytes.clone(), _exchange: None });
    // If the client goes away before there is an answer, this is dropped here, and with it the exchange.
    let mut exchange = exchange;
    let response = next.run(Request::from_parts(parts, body)).await;
    exchange.answered(response.status());
    let (parts, body) = response.into_parts();
    let bytes = exchange.response_bytes.clone();
    Response::from_parts(parts, Body::new(Counted { body, bytes, _exchange: Some(exchange) }))
}

/// Methods as labels: clients may invent others, labels should not.
fn method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

/// A request and its answer; what is to be said of them is said when this is dropped.
struct Exchange {
    metrics: Arc<HttpMetrics>,
    handler: String,
    method: &'static str,
    started: Instant,
    answered: bool,
    request_bytes: Arc<AtomicU64>,
    response_bytes: Arc<AtomicU64>,
}

impl Exchange {
    fn answered(&mut self, status: StatusCode) {
        self.answered = true;
        let class = match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.metrics.requests.with_label_values(&[self.handler.as_str(), self.method, class]).inc();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.answered {
            // The handler panicked, or the client gave up: 499 to those who have a number for that.
            let panicked = std::thread::panicking();
            self.answered(if panicked { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::BAD_REQUEST });
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let handler = self.handler.as_str();
        let bytes = |counted: &AtomicU64| counted.load(Ordering::Relaxed) as f64;
        self.metrics.duration.with_label_values(&[handler, self.method]).observe(seconds);
        self.metrics.fine_duration.observe(seconds);
        self.metrics.request_size.with_label_values(&[handler]).observe(bytes(&self.request_bytes));
        self.metrics.response_size.with_label_values(&[handler]).observe(bytes(&self.response_bytes));
    }
}

/// A body whose bytes are counted as they pass.
struct Counted {
    body: Body,
    bytes: Arc<AtomicU64>,
    /// Ends with the body of the answer.
    _exchange: Option<Exchange>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
