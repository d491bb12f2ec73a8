//! What all endpoints share.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use tegula_engine::Engine;
use tegula_engine::chat::ChatTemplate;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::auth::Keys;
use crate::error::ApiError;
use crate::inflight::InFlight;
use crate::metrics::HttpMetrics;
use crate::tools::ToolFormat;

/// All bodies that arrive or wait together may have so many times the bytes of the largest one.
const BODIES: usize = 8;

/// How the edge is to behave.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Keys of which a request must have one; without any, all are welcome.
    pub api_keys: Keys,
    /// Whether `/metrics` wants a key too.
    pub protect_metrics: bool,
    /// Origins whose pages may use the server, besides its own: `https://example.org`, or `*` for all.
    pub allowed_origins: Vec<String>,
    /// Names besides the engine's that requests may call the model by.
    pub aliases: Vec<String>,
    /// Refuses requests with unknown parameters, which otherwise are named in a header of the answer.
    pub strict_parameters: bool,
    /// Most bytes of a request's body. All that arrive or wait have eight times as many together.
    pub max_body: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long the head of a request may take to arrive, and how long a connection may lie idle.
    pub header_timeout: Duration,
    /// How long a client may leave what it was sent unacknowledged, or unread so that nothing more can be sent, before it
    /// counts as gone.
    pub client_timeout: Duration,
    /// How long a stream of events is silent before a comment says that it goes on.
    pub ping_interval: Duration,
    /// Most connections; a few more are told that there are too many.
    pub max_connections: usize,
    /// Most requests that are prepared at once: their bodies parsed, their texts made tokens, their grammars compiled.
    pub max_blocking: usize,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            api_keys: Keys::default(),
            protect_metrics: false,
            allowed_origins: vec![],
            aliases: vec![],
            strict_parameters: false,
            max_body: 8 << 20,
            body_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(10),
            client_timeout: Duration::from_secs(60),
            ping_interval: Duration::from_secs(15),
            max_connections: 1024,
            max_blocking: std::thread::available_parallelism().map_or(2, |n| n.get().max(2)),
        }
    }
}

/// The state of all endpoints. Clones are the same one.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    config: ServerConfig,
    engine: OnceLock<Loaded>,
    http: Arc<HttpMetrics>,
    in_flight: InFlight,
    blocking: Arc<Semaphore>,
    /// Bytes.
    bodies: Arc<Semaphore>,
    started: Instant,
    created: SystemTime,
}

/// What is known once the model is loaded.
struct Loaded {
    engine: Engine,
    /// Most bytes of a token.
    longest_token: usize,
    /// How functions are put before the model, if it has a chat template.
    tools: Option<ToolFormat>,
}

impl App {
    /// Without an engine: it is loading.
    pub fn new(config: ServerConfig) -> App {
        App(Arc::new(Inner {
            blocking: Arc::new(Semaphore::new(config.max_blocking.max(1))),
            bodies: Arc::new(Semaphore::new(BODIES.saturating_mul(config.max_body).min(Semaphore::MAX_PERMITS))),
            config,
            engine: OnceLock::new(),
            http: Arc::default(),
            in_flight: InFlight::default(),
            started: Instant::now(),
            created: SystemTime::now(),
        }))
    }

    /// Serves with this engine from now on. The first one stays.
    pub fn serve_with(&self, engine: Engine) {
        let tokenizer = engine.tokenizer();
        let tokens = 0..tokenizer.vocab_size() as u32;
        let longest_token = tokens.map(|token| tokenizer.token_bytes(token).len()).max().unwrap_or(1).max(1);
        let tools = engine.template().map(ToolFormat::of);
        // A second one would have come from a second load, which nobody starts.
        let _ = self.0.engine.set(Loaded { engine, longest_token, tools });
    }

    /// The engine.
    ///
    /// # Errors
    /// 503 while it is loading.
    pub fn engine(&self) -> Result<&Engine, ApiError> {
        self.loaded().map(|loaded| &loaded.engine)
    }

    /// Most bytes of a token.
    ///
    /// # Errors
    /// 503 while the model is loading.
    pub fn longest_token(&self) -> Result<usize, ApiError> {
        self.loaded().map(|loaded| loaded.longest_token)
    }

    /// The chat template, and how functions are put before the model.
    ///
    /// # Errors
    /// 503 while the model is loading, and 400 if it has none.
    pub fn chat(&self) -> Result<(&ChatTemplate, ToolFormat), ApiError> {
        let Loaded { engine, tools, .. } = self.loaded()?;
        engine.template().zip(*tools).ok_or_else(|| {
            ApiError::bad_request(format!(
                "{} has no chat template: it only continues text, at /v1/completions",
                engine.name()
            ))
        })
    }

    fn loaded(&self) -> Result<&Loaded, ApiError> {
        self.0.engine.get().ok_or_else(|| ApiError::unavailable("the model is loading"))
    }

    /// How the edge is to behave.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    /// Metrics of HTTP.
    pub fn http(&self) -> &Arc<HttpMetrics> {
        &self.0.http
    }

    /// Requests that are being answered.
    pub fn in_flight(&self) -> &InFlight {
        &self.0.in_flight
    }

    /// Room for so many more bytes of bodies, until it is dropped.
    ///
    /// # Errors
    /// 503 if those that wait have too many already.
    pub fn body_share(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let share =
            u32::try_from(bytes).ok().and_then(|bytes| self.0.bodies.clone().try_acquire_many_owned(bytes).ok());
        share.ok_or_else(|| {
            let most = BODIES.saturating_mul(self.config().max_body);
            let message =
                format!("the bodies of requests that wait have {most} bytes, the most they may: try again later");
            ApiError::unavailable(message)
        })
    }

    /// When the process began to serve.
    pub fn started(&self) -> Instant {
        self.0.started
    }

    /// When the process began to serve, in seconds since 1970: the model's `created`.
    pub fn created(&self) -> u64 {
        self.0.created.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Does something that takes a while (making tokens, compiling a grammar) where nobody else waits for it. At most
    /// [`ServerConfig::max_blocking`] such things are done at once; others wait their turn, and if their client leaves
    /// meanwhile they are not done at all.
    ///
    /// # Errors
    /// Its own, or 500 if it panics.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        // It is never closed.
        let permit = self.0.blocking.clone().acquire_owned().await.map_err(|e| ApiError::internal(e.to_string()))?;
        let app = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&app)
        });
        done.await.unwrap_or_else(|_| Err(ApiError::internal("the server failed at this request; its log says more")))
    }
}
