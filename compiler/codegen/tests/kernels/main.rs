//! Kernels as text, compiled and run, against the oracle.

mod basic;
mod control;
mod elementwise;
mod harness;
mod math;
mod memory;
mod ops;
mod packed;
mod report;
mod shape;
mod stream;
