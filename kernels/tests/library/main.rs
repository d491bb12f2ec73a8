//! Every kernel of the library beside plain Rust that shares nothing with it, on the CPU, on the oracle (with its
//! sanitizer) and on emulated GPUs. Inputs are random and not zero, outputs are poisoned first, extents are awkward.

mod attention;
mod basic;
mod embed;
mod linear;
mod logprobs;
mod matrix;
mod norm;
mod pack;
mod quantise;
mod rope;
mod rules;
mod sample;
mod support;
mod targets;
mod traffic;
