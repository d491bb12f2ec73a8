//! Why a launch was refused or failed.

use super::MOST_ELEMENTS;
use crate::error::BuildError;
use std::fmt;
use tegula_ir::gpu::MAX_WARPS;

/// A launch error: a value that names the kernel and what would be right. Its `Debug` is its `Display`, since that is what a
/// `main` that returns it prints.
#[non_exhaustive]
pub enum LaunchError {
    /// An argument does not fit its parameter.
    Argument {
        /// The kernel.
        kernel: &'static str,
        /// The parameter's name.
        argument: &'static str,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// The kernel's dims were not given.
    NoDims {
        /// The kernel.
        kernel: &'static str,
        /// Its dims.
        dims: &'static [&'static str],
    },
    /// A dim's value makes no tile: it is 0, or more than a tile's elements.
    Dim {
        /// The kernel.
        kernel: &'static str,
        /// The dim.
        dim: &'static str,
        /// Its value.
        found: usize,
    },
    /// The kernel's `#[build]` parameter was not given.
    NoOptions {
        /// The kernel.
        kernel: &'static str,
        /// The parameter's name.
        argument: &'static str,
    },
    /// A number of warps that no program has.
    Warps {
        /// The kernel.
        kernel: &'static str,
        /// The number.
        found: usize,
    },
    /// No grid was given and none follows from the arguments, or it is too large.
    Grid {
        /// The kernel.
        kernel: &'static str,
        /// Why.
        reason: String,
    },
    /// Mistakes in the kernel that show only with these dims and options.
    Build(BuildError),
    /// The executor could not compile or run it.
    Executor {
        /// The kernel.
        kernel: &'static str,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl LaunchError {
    /// An executor's own error.
    pub fn executor(kernel: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LaunchError {
        LaunchError::Executor { kernel, source: source.into() }
    }
}

impl From<BuildError> for LaunchError {
    fn from(e: BuildError) -> LaunchError {
        LaunchError::Build(e)
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::Argument { kernel, argument, expected, found } => {
                write!(f, "kernel `{kernel}`, argument `{argument}`: expected {expected}, found {found}")
            }
            LaunchError::NoDims { kernel, dims } => {
                write!(f, "kernel `{kernel}`: give its dims with `.dims({})`", dims.join(", "))
            }
            LaunchError::Dim { kernel, dim, found } => {
                write!(f, "kernel `{kernel}`, dim `{dim}`: expected 1 to {MOST_ELEMENTS}, found {found}")
            }
            LaunchError::NoOptions { kernel, argument } => {
                write!(f, "kernel `{kernel}`: give its build options `{argument}` with `.cfg(..)`")
            }
            LaunchError::Warps { kernel, found } => {
                write!(f, "kernel `{kernel}`, warps: expected a power of two up to {MAX_WARPS}, found {found}")
            }
            LaunchError::Grid { kernel, reason } => {
                write!(f, "kernel `{kernel}`, grid: {reason}")
            }
            LaunchError::Build(e) => e.fmt(f),
            LaunchError::Executor { kernel, source } => {
                let text = source.to_string();
                // Most say it themselves.
                if text.contains(&format!("kernel `{kernel}`")) {
                    f.write_str(&text)
                } else {
                    write!(f, "kernel `{kernel}`: {text}")
                }
            }
        }
    }
}

impl fmt::Debug for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for LaunchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LaunchError::Executor { source, .. } => source.source(),
            _ => None,
        }
    }
}
