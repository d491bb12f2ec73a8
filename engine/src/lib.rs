//! tegula-engine: language models on Tegula's kernels, as a library.
//!
//! A model file passes through these modules in this order: [`pull`] finds or downloads it, [`gguf`] maps and checks it,
//! [`tokenizer`] turns text into the tokens it knows, [`chat`] a conversation.

pub mod chat;
pub mod engine;
mod error;
pub mod eval;
pub mod gguf;
pub mod grammar;
pub mod kv;
pub mod metrics;
pub mod model;
pub mod progress;
pub mod pull;
mod rehearse;
pub mod sampling;
pub mod schedule;
pub mod session;
pub mod text;
pub mod tokenizer;
pub mod trace;

pub use engine::Engine;
pub use error::Error;
pub use rehearse::rehearse;
