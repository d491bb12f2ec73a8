//! PTX on any machine: a parser and an emulator that executes GPU code and says what is wrong with it.
//!
//! ```
//! use tegula_ptx::{Emulator, Grid, Module, Options, Param};
//!
//! let text = "
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry double(.param .u64 data) {
//!         .reg .b32 %r<3>; .reg .b64 %rd<4>;
//!         ld.param.u64 %rd1, [data];
//!         mov.u32 %r1, %tid.x;
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         ld.global.u32 %r2, [%rd3];
//!         shl.b32 %r2, %r2, 1;
//!         st.global.u32 [%rd3], %r2;
//!         ret;
//!     }";
//! let module = Module::parse(text, "sm_80")?;
//! let mut emulator = Emulator::new(Options::default());
//! let words: Vec<u8> = (0..32u32).flat_map(u32::to_le_bytes).collect();
//! let data = emulator.memory.alloc_with("data", &words);
//! let report = emulator.launch(&module, "double", Grid::new(1, 32), &[Param::U64(data)])?;
//! assert_eq!(emulator.memory.read_vec(data + 12, 4)?, 6u32.to_le_bytes());
//! assert_eq!(report.counters.global_sectors, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The path of a kernel: [`text`] makes tokens and a syntax tree, [`decode`] a flat program of executable instructions
//! (their meaning is in [`isa`], one table row each), [`exec`] runs warps of 32 lanes over it, [`mem`] holds what they
//! load and store and checks every access.

// Lanes are numbered and several rows run beside each other; a comparison that also holds for NaN is a negated one; shifts
// and masks read like the formulas of the PTX manual.
#![allow(clippy::needless_range_loop, clippy::neg_cmp_op_on_partial_ord, clippy::precedence)]

pub mod arch;
pub mod cases;
pub mod counters;
pub mod coverage;
pub mod decode;
pub mod emulator;
pub mod error;
pub mod exec;
pub mod isa;
pub mod mem;
pub mod num;
pub mod tensor_map;
pub mod text;
pub mod types;

pub use counters::{Counters, Kind};
pub use emulator::{Emulator, Grid, Module, Options, Param, Report, Strict};
pub use error::Error;
pub use exec::{
    async_copy::Completion,
    fault::{Fault, FaultKind},
};
pub use mem::global::Memory;
pub use tensor_map::TensorMap;
