//! For tests of every executor: kernels in few lines, buffers with expected contents, the conformance rows, random
//! programs. Behind the feature `testing`.
//!
//! - [`K`] builds kernels by hand.
//! - [`Row`] is a kernel with inputs and expected outputs; [`conformance::rows`] lists small inputs that broke other
//!   compilers.
//! - [`random`] makes valid kernels and inputs out of a seed.

pub mod conformance;
mod k;
pub mod random;
mod row;

pub use k::K;
pub use row::{Arg, Buffer, Expected, Row, Want, data, ints, on_oracle, same_value};
