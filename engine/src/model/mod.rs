//! Models: what a decoder is made of, how it runs.
//!
//! [`Config`] holds a model's numbers, read from a GGUF file by the file of its architecture ([`arch`]); [`Weights`] its
//! packed tensors; [`Decoder`] the forward pass, written once for all. A forward pass always takes a ragged [`Batch`]:
//! several sequences, each with any number of new tokens.

pub mod arch;
pub mod batch;
pub mod config;
pub mod decoder;
pub mod input;
pub mod kv;
pub mod weights;

pub use batch::{Batch, Chunk};
pub use config::Config;
pub use decoder::Decoder;
pub use input::Activations;
pub use kv::KvCache;
pub use weights::Weights;
