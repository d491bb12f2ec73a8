//! The CPU's matrix products: small functions are emitted, compiled for AVX2 and for AVX-512 with and without VNNI, run,
//! and compared bit for bit with plain Rust.

mod dequant;
mod dot;
mod gemm;
mod grouped;
mod harness;
mod shape;
