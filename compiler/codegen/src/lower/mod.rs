//! From tile IR to MLIR.
pub mod cpu;
pub mod gpu;
