//! What all endpoints share.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tegula_engine::Engine;

use crate::error::ApiError;

/// How the edge is to behave.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Keys of which a request must have one; none asks for none.
    pub api_keys: Vec<String>,
    /// Most bytes of a request's body.
    pub max_body: usize,
    /// Refuses requests with unknown parameters, which otherwise are named in a header of the answer.
    pub strict_parameters: bool,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig { api_keys: vec![], max_body: 8 << 20, strict_parameters: false }
    }
}

/// The state of all endpoints.
#[derive(Clone)]
pub struct App(Arc<Inner>);

struct Inner {
    config: ServerConfig,
    engine: OnceLock<Engine>,
    started: Instant,
}

impl App {
    /// Without an engine: it is loading.
    pub fn new(config: ServerConfig) -> App {
        App(Arc::new(Inner { config, engine: OnceLock::new(), started: Instant::now() }))
    }

    /// Serves with this engine from now on. The first one stays.
    pub fn serve_with(&self, engine: Engine) {
        // A second one would have come from a second load, which nobody starts.
        let _ = self.0.engine.set(engine);
    }

    /// The engine.
    ///
    /// # Errors
    /// 503 while it is loading.
    pub fn engine(&self) -> Result<&Engine, ApiError> {
        self.0.engine.get().ok_or_else(|| ApiError::unavailable("the model is loading"))
    }

    /// How the edge is to behave.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }

    /// When the process began to serve.
    pub fn started(&self) -> Instant {
        self.0.started
    }
}
