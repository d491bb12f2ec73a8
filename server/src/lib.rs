//! tegula-server: the HTTP edge of the engine, with the endpoints of OpenAI's API and the names of vLLM.
//!
//! ```text
//!  socket ─ listen ─▶ layers: panics, CORS, metrics, keys ─▶ one file per endpoint ─▶ Engine
//! ```

mod admin;
mod auth;
mod chat;
mod chat_prompt;
mod completions;
mod edge;
pub mod error;
pub mod fields;
mod generate;
mod health;
mod host;
mod impatient;
mod inference;
pub mod inflight;
mod limits;
mod listen;
mod logprobs;
pub mod metrics;
mod models;
pub mod page;
mod pieces;
mod prompt;
mod response;
mod run;
mod sampling;
pub mod signals;
mod size;
mod state;
mod stream;
mod tokens;
pub mod tools;
pub mod trace;
mod watched;

pub use auth::Keys;
pub use edge::router;
pub use error::ApiError;
pub use listen::{Running, Server, runtime};
pub use state::{App, ServerConfig};
