//! tegula-server: the HTTP edge of the engine, with the endpoints of OpenAI's API and the names of vLLM.
//!
//! ```text
//!  socket ─ listen ─▶ layers: limits, auth, metrics ─▶ one file per endpoint ─▶ Engine
//! ```

pub mod error;
mod health;
mod state;

use axum::Router;
use axum::routing::get;

pub use error::ApiError;
pub use state::{App, ServerConfig};

/// All endpoints.
pub fn router(app: App) -> Router {
    Router::new().route("/health", get(health::health)).route("/ready", get(health::ready)).with_state(app)
}

pub mod tools;
