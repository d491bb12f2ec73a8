//! tegula-engine: language models on Tegula's kernels, as a library and as the `tegula` command.
//!
//! A model file passes through these modules in this order: [`gguf`] maps and checks it.

pub mod gguf;
