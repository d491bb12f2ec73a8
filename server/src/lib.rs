//! tegula-server: the HTTP edge of the engine, with the endpoints of OpenAI's API and the names of vLLM.
//!
//! ```text
//!  socket ─ listen ─▶ layers: panics, CORS, metrics, keys ─▶ one file per endpoint ─▶ Engine
//! ```

mod auth;
mod edge;
pub mod error;
pub mod fields;
mod health;
mod limits;
pub mod metrics;
mod models;
mod state;
pub mod tools;
pub mod trace;

pub use auth::Keys;
pub use edge::router;
pub use error::ApiError;
pub use state::{App, ServerConfig};
