//! Compiled kernels on disk, shared by all processes of a user.
//!
//! - [`artifact_key`]: what a kernel's artifact depends on, as 128 bits;
//! - [`DiskCache`]: files by key: written whole or not at all, checked when read, never an error.

mod disk;
mod key;

pub use disk::{DiskCache, Entry};
pub use key::artifact_key;
