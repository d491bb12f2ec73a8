//! Kernels as text, compiled and run, against the oracle.

mod basic;
mod elementwise;
mod harness;
