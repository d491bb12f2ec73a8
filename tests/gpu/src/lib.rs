//! What runs on a machine with a GPU: see README.md.
//!
//! - [`raw`]: PTX on a GPU or on the emulator; [`instructions`]: what each instruction does there; [`truth`]: tables of it;
//! - `kernels`: every kernel beside float64; `timings`: how long they take, beside peers;
//! - [`parts`]: what a child process does; [`parent`]: children, budgets, the report.

pub mod instructions;
pub mod raw;
pub mod truth;
