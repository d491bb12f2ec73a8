//! Tile IR to MLIR for x86-64 CPUs.

pub mod build;
pub mod micro;
