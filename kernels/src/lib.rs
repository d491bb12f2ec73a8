//! Tegula's kernel library: every tensor operation of the engine, written in the language.
//!
//! | module | what |
//! |---|---|
//! | [`basic`] | vector add, softmax, matrix product |
//! | [`embed`] | rows of an embedding table, quantised or not |
//! | [`norm`] | RMS norm |
//! | [`quantise`] | activations to groups of 8 or 16 bits |
//! | [`linear`] | products with packed weights |
//! | [`rope`] | rotary position embedding, and keys and values into the cache |
//! | [`attention`] | attention over the paged KV cache |
//! | [`activation`] | SwiGLU |
//! | [`rules`] | logits changed token by token, and masked |
//! | [`sample`] | argmax, and sampling with temperature, top-k, top-p, min-p, typical |
//! | [`logprobs`] | log-probabilities of a chosen token and of the most likely ones |
//! | [`pack`] | GGUF weights into a target's layout |
//! | [`registry`] | all of them by name |
//!
//! Shapes in the docs are written `[rows, columns]`; a *token* is a row of a ragged batch.

pub mod activation;
pub mod attention;
pub mod basic;
pub mod embed;
pub mod linear;
pub mod logprobs;
pub mod norm;
pub mod pack;
pub mod quantise;
pub mod registry;
pub mod rope;
pub mod rules;
pub mod sample;
