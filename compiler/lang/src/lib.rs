//! The language: what a kernel author writes with.
//!
//! A kernel is a Rust function over tiles, with `#[kernel]` before it. The attribute turns the function into Rust code
//! that, when run, *builds* the kernel's tile IR: so names, types, traits, generics and closures are rustc's own, and a
//! mismatch between shapes is an ordinary error at `cargo check`.
//!
//! **Types are stages.** `usize`, `bool`, `f32` in a kernel's body are build-time values; [`Tile`] and [`Scalar`] are
//! run-time values. `if` on a `bool` picks code, on a `Scalar<bool>` it branches; `for` over `0..4` unrolls, over
//! `0..n` with a `Scalar` end it is a loop.
//!
//! | module | what |
//! |---|---|
//! | [`elem`] | element types |
//! | [`dim`], [`shape`] | extents and shapes as types |
//! | [`tile`] | tiles, scalars and their operations |
//! | [`view`], [`position`] | reading and writing tensors |
//! | [`packed`], [`dot`](mod@dot) | quantised weights, matrix products |
//! | [`program`], [`random`] | program ids, facts, asserts; random numbers |
//! | [`flow`] | control flow, by which `#[kernel]` bodies build IR |
//! | [`launch`] | arguments, launches, executors |
//! | [`error`] | mistakes found while a kernel is built |

mod context;
pub mod dim;
pub mod dot;
pub mod elem;
pub mod error;
pub mod float8;
pub mod flow;
pub mod launch;
pub mod packed;
pub mod position;
pub mod prelude;
pub mod program;
pub mod random;
#[doc(hidden)]
pub mod rt;
pub mod shape;
pub mod tile;
pub mod view;

pub use context::build;
pub use error::{BuildError, Fault};
pub use prelude::*;
