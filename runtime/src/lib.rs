//! Tegula, for authors of tile kernels: write a kernel as a Rust function over tiles, launch it on a device.
//!
//! This crate re-exports the language (`tegula_lang`) and adds what runs it:
//!
//! - [`device`]: the CPU, NVIDIA GPUs, emulated ones, the oracle; streams; launching;
//! - [`tensor`]: the arrays that kernels work on; [`memory`] under them;
//! - [`pool`]: the threads of the CPU;
//! - [`compile`], [`cache`]: the compiler's processes, and its results on disk;
//! - [`bundle`]: compiled kernels shipped with a program, which then needs neither.
//!
//! Environment: `TEGULA_THREADS`, `TEGULA_CPU` (instruction set), `TEGULA_CACHE` (folder, or `off`), `TEGULA_CACHE_MB`,
//! `TEGULAC` (the compiler program), `TEGULA_COMPILER_MB` (its memory), `TEGULA_BUNDLE` (a bundle, or `off`). How to use
//! Tegula from one's own crate: `docs/embedding.md`.

/// `Debug` of an error as its `Display`: what a `main` that returns it prints.
macro_rules! readable_debug {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
use readable_debug;

pub mod bundle;
pub mod cache;
pub mod compile;
pub mod device;
pub mod memory;
pub mod pool;
pub mod tensor;

pub use device::{Device, DeviceError, Event, Graph, Stream};
pub use tegula_ir as ir;
pub use tegula_lang::*;
pub use tegula_ptx as ptx;
pub use tensor::{MappedFile, PackedTensor, Tensor, TensorError, TensorView, TensorViewMut};

/// What most programs with kernels use.
pub mod prelude {
    pub use crate::{Device, MappedFile, PackedTensor, Stream, Tensor, TensorError, TensorView, TensorViewMut};
    pub use tegula_lang::prelude::*;
}

/// The book's chapter on the language: its code is tested.
#[cfg(doctest)]
#[doc = include_str!("../../docs/language.md")]
struct LanguageBook;
