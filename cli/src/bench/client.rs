//! One request to a server with OpenAI's API, streamed, and when each of its tokens came. HTTP/1.1 without TLS.

use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Map, Value, json};
use tegula_engine::Error;

use super::dataset::Sample;
use super::sse::Events;

/// The endpoint, and so the shape of what is sent and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// A server, and what is the same in all requests to it.
#[derive(Clone)]
pub(super) struct Client {
    pool: Pool<HttpConnector, Full<Bytes>>,
    base: String,
    endpoint: String,
    pub shape: Shape,
    pub model: String,
    headers: Vec<(String, String)>,
    /// Fields of each body.
    pub fields: Map<String, Value>,
    start: Instant,
}

/// What came of a request. Times in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// When it was sent, from the start of the run.
    pub sent: f64,
    /// Until its first token.
    pub ttft: f64,
    /// Between its tokens.
    pub itl: Vec<f64>,
    /// Until its last token.
    pub latency: f64,
    /// As the server counted them, if it did.
    pub prompt_tokens: Option<usize>,
    pub output_tokens: usize,
    pub text: String,
    /// Why it failed.
    pub error: Option<String>,
}

impl Client {
    pub fn new(base: &str, endpoint: &str, shape: Shape, headers: Vec<(String, String)>) -> Result<Client, Error> {
        let base = base.trim_end_matches('/').to_owned();
        let good = base.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("http") && uri.host().is_some());
        if !good {
            return Err(Error::Usage(format!(
                "--base-url {base}: expected http://HOST:PORT (https is not spoken here)"
            )));
        }
        let endpoint = format!("/{}", endpoint.trim_start_matches('/'));
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // A connection for each request: some servers close theirs after a stream without saying so.
        let pool = Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let (model, fields) = (String::new(), Map::new());
        let client = Client { pool, base, endpoint, shape, model, headers, fields, start: Instant::now() };
        // Headers that cannot be sent are told before anything is.
        client.request("POST", "/", String::new(), None)?;
        Ok(client)
    }

    /// Times of outcomes are counted from here.
    pub fn start_clock(&mut self) {
        self.start = Instant::now();
    }

    fn request(&self, method: &str, path: &str, body: String, id: Option<&str>) -> Result<Request<Full<Bytes>>, Error> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        request = request.header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(id) = id {
            request = request.header("x-request-id", id);
        }
        let wrong = |e| Error::Usage(format!("a request cannot be made of --base-url, --endpoint and --header: {e}"));
        request.body(Full::from(body)).map_err(wrong)
    }

    /// The first model of the server's list, as an error says if there is none.
    pub async fn first_model(&self) -> Result<String, String> {
        let request = self.request("GET", "/v1/models", String::new(), None).map_err(|e| e.to_string())?;
        let response = self.pool.request(request).await.map_err(|e| chain(&e))?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|e| chain(&e))?.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let name = value["data"][0]["id"].as_str();
        name.map(str::to_owned).ok_or_else(|| format!("GET /v1/models: {status}: {}", excerpt(&body)))
    }

    /// Whether the server is there and has started: any answer will do but that it is not available yet.
    pub async fn answers(&self) -> bool {
        let Ok(request) = self.request("GET", "/v1/models", String::new(), None) else { return false };
        self.pool.request(request).await.is_ok_and(|response| response.status() != StatusCode::SERVICE_UNAVAILABLE)
    }

    fn body(&self, sample: &Sample) -> String {
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        match self.shape {
            Shape::Completions => {
                body.insert("prompt".into(), json!(sample.prompt));
                body.insert("max_tokens".into(), json!(sample.output));
            }
            Shape::Chat => {
                body.insert("messages".into(), json!([{ "role": "user", "content": sample.prompt }]));
                body.insert("max_completion_tokens".into(), json!(sample.output));
            }
        }
        body.insert("stream".into(), json!(true));
        body.insert("stream_options".into(), json!({ "include_usage": true }));
        body.extend(self.fields.clone());
        Value::Object(body).to_string()
    }

    /// Sends it and reads the answer to its end.
    pub async fn generate(&self, sample: &Sample, id: Option<&str>) -> Outcome {
        let mut answer =
            Answer { shape: self.shape, started: None, last: None, done: false, usage: None, out: Outcome::default() };
        let request = self.request("POST", &self.endpoint, self.body(sample), id);
        let sent = Instant::now();
        answer.out.sent = (sent - self.start).as_secs_f64();
        let failed = match request {
            Ok(request) => self.read(request, &mut answer).await.err(),
            Err(e) => Some(e.to_string()),
        };
        answer.end(sent, failed)
    }

    async fn read(&self, request: Request<Full<Bytes>>, answer: &mut Answer) -> Result<(), String> {
        let response = self.pool.request(request).await.map_err(|e| chain(&e))?;
        let status = response.status();
        let mut body = response.into_body();
        if !status.is_success() {
            let body = body.collect().await.map_err(|e| chain(&e))?.to_bytes();
            return Err(format!("HTTP {}: {}", status.as_u16(), excerpt(&body)));
        }
        let mut events = Events::default();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| chain(&e))?;
            let now = Instant::now();
            for event in frame.data_ref().map(|data| events.push(data)).unwrap_or_default() {
                answer.event(&event, now)?;
            }
        }
        if answer.done { Ok(()) } else { Err("the stream ended before data: [DONE]".to_owned()) }
    }
}

/// An answer as it comes.
struct Answer {
    shape: Shape,
    started: Option<Instant>,
    last: Option<Instant>,
    done: bool,
    usage: Option<usize>,
    out: Outcome,
}

impl Answer {
    fn event(&mut self, data: &str, now: Instant) -> Result<(), String> {
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        let value: Value = serde_json::from_str(data)
            .map_err(|e| format!("an event is no JSON: {e}: {}", excerpt(data.as_bytes())))?;
        if let Some(error) = value.get("error") {
            return Err(format!("the server says: {}", excerpt(error.to_string().as_bytes())));
        }
        let count = |usage: &Value, name: &str| usage.get(name)?.as_u64().map(|n| n as usize);
        if let Some(usage) = value.get("usage") {
            self.usage = count(usage, "completion_tokens").or(self.usage);
            self.out.prompt_tokens = count(usage, "prompt_tokens").or(self.out.prompt_tokens);
        }
        if let Some(choice) = value.get("choices").and_then(|choices| choices.get(0))
            && let Some(text) = self.text(choice)
        {
            self.out.text += text;
            match self.last {
                None => self.started = Some(now),
                Some(last) => self.out.itl.push((now - last).as_secs_f64()),
            }
            self.last = Some(now);
        }
        Ok(())
    }

    /// The text of an event that stands for a token. A token may have no text (bytes of a character that is not whole);
    /// what has none and ends the answer, or only says whose turn it is, stands for none.
    fn text<'v>(&self, choice: &'v Value) -> Option<&'v str> {
        let ends = choice.get("finish_reason").is_some_and(|reason| !reason.is_null());
        let (text, silent) = match self.shape {
            Shape::Completions => (choice.get("text")?.as_str()?, ends),
            Shape::Chat => {
                let delta = choice.get("delta")?;
                if delta.get("tool_calls").is_some_and(|calls| !calls.is_null()) {
                    return Some("");
                }
                let names = ["content", "reasoning_content", "reasoning"];
                let text = names.into_iter().find_map(|name| delta.get(name)?.as_str())?;
                (text, ends || delta.get("role").is_some())
            }
        };
        (!text.is_empty() || !silent).then_some(text)
    }

    fn end(self, sent: Instant, failed: Option<String>) -> Outcome {
        let since = |at: Option<Instant>| at.map_or(0.0, |at| (at - sent).as_secs_f64());
        let events = self.out.itl.len() + usize::from(self.started.is_some());
        let mut out = Outcome { ttft: since(self.started), latency: since(self.last), ..self.out };
        // A server that does not count sends an event for each token, as far as anybody can tell.
        out.output_tokens = self.usage.unwrap_or(events);
        out.error = failed.or_else(|| self.started.is_none().then(|| "there was no token in the answer".to_owned()));
        out
    }
}

/// An error with its causes, which hyper's own text leaves out.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

/// The beginning of a body, in one line.
fn excerpt(body: &[u8]) -> String {
    crate::table::one_line(String::from_utf8_lossy(body).trim(), 300)
}

/// How long to wait between attempts to reach a server that is starting.
pub(super) const AGAIN: Duration = Duration::from_millis(250);
