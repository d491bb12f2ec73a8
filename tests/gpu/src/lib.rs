//! What runs on a machine with a GPU: see README.md.
//!
//! This library runs PTX as it is ([`raw`]) and knows what each instruction is asked ([`instructions`]), and keeps the
//! answers ([`truth`]). The program, `gpu`, does that on a device, runs every kernel beside float64, and times them.

pub mod instructions;
pub mod raw;
pub mod truth;
