//! Compiled kernels on disk, shared by all processes of a user.
//!
//! - [`kernel_key`], [`artifact_key`], [`exact_key`]: what a kernel, and its artifact, depend on, as 128 bits;
//! - [`DiskCache`]: files by key: written whole or not at all, checked when read, never an error.

mod disk;
mod key;

pub use disk::{DiskCache, Entry};
pub use key::{artifact_key, exact_key, kernel_key};
