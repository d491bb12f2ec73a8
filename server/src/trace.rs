//! A span for every request, sent to an OpenTelemetry collector over OTLP/HTTP.
//!
//! A sample of a request is one span `llm_request`, a child of the span that the caller's `traceparent` names, made when the
//! sample ends: with its start, its end, what happened between as events, and counts and times as attributes. It never has
//! a text. Spans are sent in batches by a thread of their own; if the collector is slow or away they are dropped, and
//! nothing waits.
//!
//! The SDK's environment variables hold: `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS`,
//! `OTEL_BSP_*`, `OTEL_TRACES_SAMPLER`.

use std::env;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer as _,
    TracerProvider as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tegula_engine::metrics::{Ended, Observer};
use tegula_engine::schedule::FinishReason;
use tegula_engine::trace::TraceContext;

/// How long a collector may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of the process waits for spans to be sent.
const LAST: Duration = Duration::from_secs(2);

/// Where a collector takes spans, at an address without a path.
const PATH: &str = "/v1/traces";

/// Sends spans until it is dropped; what is waiting then is sent before.
pub struct Spans {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    model: String,
}

impl Spans {
    /// To a collector, as in `http://localhost:4318`, of an engine that serves a model under this name.
    ///
    /// # Errors
    /// If that is no address. Whether somebody is there shows later, as a warning in the log.
    pub fn otlp(endpoint: &str, model: &str) -> Result<Spans, String> {
        let endpoint = address(endpoint)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(TIMEOUT)
            .build()
            .map_err(|e| e.to_string())?;
        let resource = Resource::builder();
        let named = env::var_os("OTEL_SERVICE_NAME").is_some();
        let resource = if named { resource } else { resource.with_service_name("tegula") };
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
        let tracer = provider.tracer("tegula");
        Ok(Spans { provider, tracer, model: model.to_owned() })
    }

    /// Sends what waits to be sent, and waits for that.
    ///
    /// # Errors
    /// If the collector did not take it.
    pub fn flush(&self) -> Result<(), String> {
        self.provider.force_flush().map_err(|e| e.to_string())
    }
}

/// The whole address of an endpoint: with the standard's path if it has none.
fn address(endpoint: &str) -> Result<String, String> {
    let right = "expected an address such as http://localhost:4318";
    let uri: axum::http::Uri = endpoint.parse().map_err(|e| format!("{right}, found `{endpoint}` ({e})"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(format!("{right}, found `{endpoint}`"));
    }
    let bare = matches!(uri.path(), "" | "/");
    Ok(if bare { format!("{}{PATH}", endpoint.trim_end_matches('/')) } else { endpoint.to_owned() })
}

impl Drop for Spans {
    fn drop(&mut self) {
        // What could not be sent is lost, as it would be while running.
        let _ = self.provider.shutdown_with_timeout(LAST);
    }
}

impl Observer for Spans {
    fn ended(&self, ended: &Ended<'_>) {
        let clock = Clock::now();
        let times = &ended.end.times;
        let parent =
            ended.asked.trace.map_or_else(Context::new, |trace| Context::new().with_remote_span_context(parent(trace)));
        let mut span = self
            .tracer
            .span_builder("llm_request")
            .with_kind(SpanKind::Server)
            .with_start_time(clock.at(times.arrival))
            .with_attributes(attributes(ended, &self.model))
            .start_with_context(&self.tracer, &parent);
        let events =
            [("QUEUED", Some(times.queued)), ("SCHEDULED", times.scheduled), ("NEW_TOKENS", times.first_token)];
        for (name, moment) in events {
            if let Some(moment) = moment {
                span.add_event_with_timestamp(name, clock.at(moment), vec![]);
            }
        }
        if ended.end.reason == FinishReason::Error {
            span.set_status(Status::error(ended.end.error.clone().unwrap_or_default()));
        }
        span.end_with_timestamp(clock.at(times.finished));
    }
}

/// What the collector is told of a sample.
fn attributes(ended: &Ended<'_>, model: &str) -> Vec<KeyValue> {
    let Ended { asked, end, num_cached_tokens, .. } = ended;
    let reasons = Value::Array(Array::String(vec![StringValue::from(end.reason.as_str())]));
    let mut attributes = vec![
        KeyValue::new("gen_ai.response.model", model.to_owned()),
        KeyValue::new("gen_ai.response.finish_reasons", reasons),
        KeyValue::new("gen_ai.request.id", asked.id.clone()),
        KeyValue::new("gen_ai.request.n", i64::from(asked.n)),
        KeyValue::new("gen_ai.request.temperature", f64::from(asked.temperature)),
        KeyValue::new("gen_ai.request.top_p", f64::from(asked.top_p)),
        KeyValue::new("gen_ai.usage.prompt_tokens", count(asked.num_prompt_tokens)),
        KeyValue::new("gen_ai.usage.completion_tokens", count(end.num_output_tokens)),
        KeyValue::new("tegula.sample", i64::from(end.sample)),
        KeyValue::new("tegula.cached_tokens", count(*num_cached_tokens)),
        KeyValue::new("tegula.preemptions", i64::from(end.num_preemptions)),
    ];
    if let Some(most) = asked.max_tokens {
        attributes.push(KeyValue::new("gen_ai.request.max_tokens", count(most)));
    }
    let times = &end.times;
    let latencies = [
        ("gen_ai.latency.time_in_queue", Some(times.queue())),
        ("gen_ai.latency.time_to_first_token", times.time_to_first_token()),
        ("gen_ai.latency.e2e", Some(times.end_to_end())),
        ("gen_ai.latency.time_in_model_prefill", times.prefill()),
        ("gen_ai.latency.time_in_model_decode", times.decode()),
        ("gen_ai.latency.time_in_model_inference", times.inference()),
    ];
    let known = |(name, time): (&'static str, Option<Duration>)| Some(KeyValue::new(name, time?.as_secs_f64()));
    attributes.extend(latencies.into_iter().filter_map(known));
    attributes
}

fn count(tokens: usize) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
}

/// The caller's span, as the SDK has it.
fn parent(trace: TraceContext) -> SpanContext {
    let flags = if trace.sampled() { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let trace_id = TraceId::from(trace.trace_id().0);
    SpanContext::new(trace_id, SpanId::from(trace.span_id()), flags, true, TraceState::default())
}

/// Tells the time of day of moments on the monotonic clock.
struct Clock(Instant, SystemTime);

impl Clock {
    fn now() -> Clock {
        Clock(Instant::now(), SystemTime::now())
    }

    /// Of a moment that is past.
    fn at(&self, moment: Instant) -> SystemTime {
        self.1.checked_sub(self.0.saturating_duration_since(moment)).unwrap_or(self.1)
    }
}

/// Sends batches. On the exporter's own thread, so it may wait.
#[derive(Debug)]
struct Client(ureq::Agent);

impl Client {
    fn new() -> Client {
        // The exporter wants to see every status, and retries by itself.
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
        Client(config.build().into())
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(parts, body.as_ref()))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, Bytes::from(body.read_to_vec()?)))
    }
}

#[cfg(test)]
mod tests;
