//! Kernels as PTX on the emulator: they do what the oracle does. Shapes of the code; ptxas, where there is one.

mod dot;
mod harness;
mod math;
mod memory;
mod order;
mod ptxas;
mod report;
mod shape;
mod traffic;
