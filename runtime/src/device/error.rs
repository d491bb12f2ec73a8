//! What can go wrong on a device.

use crate::{
    bundle::{BundleError, Missing},
    compile::CompileError,
    pool::PoolError,
};
use std::{fmt, path::PathBuf};
use tegula_ir::{Loc, oracle::OracleError};

/// Why a kernel could not be compiled or run.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The processor cannot run what the compiler makes, or `TEGULA_CPU` asks for something else.
    #[error("{0}")]
    Unsupported(String),
    /// The kernel could not be compiled.
    #[error(transparent)]
    Compile(Box<CompileError>),
    /// The program's bundle cannot be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The bundle does not have the kernel, and there is no compiler.
    #[error("{0}")]
    NotBundled(#[from] Box<Missing>),
    /// The compiled kernel could not be loaded.
    #[error("the compiled kernel {} cannot be loaded: {why}", .file.display())]
    Load {
        /// The shared object.
        file: PathBuf,
        /// What the loader says.
        why: String,
    },
    /// IR that is not well-formed.
    #[error("{0}")]
    Invalid(String),
    /// An argument that does not fit, for kernels given as IR.
    #[error("kernel `{kernel}`, argument `{argument}`: expected {expected}, found {found}")]
    Argument {
        /// The kernel.
        kernel: String,
        /// The parameter's name, or its number.
        argument: String,
        /// What it takes.
        expected: String,
        /// What it was given.
        found: String,
    },
    /// Too many programs.
    #[error("grid: {0}")]
    Grid(String),
    /// The work could not be run, or panicked.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Assertions failed, or (in checked launches) indices were out of range. The launch went on to its end; what it wrote
    /// means nothing.
    #[error("{first}{}", if *.count > 1 { format!(" (the first of {count} failures)") } else { String::new() })]
    Failed {
        /// The failure of the lowest program number.
        first: Failure,
        /// How many there were.
        count: u64,
    },
    /// A kernel with checks printed more than is kept: whether a check has failed is not known.
    #[error(
        "the kernel made {lost} more reports than are kept, and failed checks may be among those that are lost: print less, \
         or without checks"
    )]
    Unreported {
        /// Reports that are lost.
        lost: u64,
    },
    /// The emulated GPU found a fault: kernel, block and thread, line of PTX, line of Rust.
    #[error("{0}")]
    Fault(Box<tegula_ptx::Fault>),
    /// An NVIDIA GPU, or its driver, failed.
    #[error("{place}: {error}")]
    Cuda {
        /// The device: `cuda:0`.
        place: String,
        /// What went wrong.
        error: super::cuda::CudaError,
    },
    /// The oracle found a fault.
    #[error(transparent)]
    Oracle(#[from] Box<OracleError>),
}

crate::readable_debug!(DeviceError);

impl From<CompileError> for DeviceError {
    fn from(e: CompileError) -> DeviceError {
        DeviceError::Compile(Box::new(e))
    }
}

/// One failed check in a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub what: String,
    /// The kernel's line.
    pub loc: Loc,
    /// Number of the program, `p0 + g0·(p1 + g1·p2)`.
    pub program: u64,
    /// Its index along each grid axis.
    pub at: [u32; 3],
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in program {} {:?}", self.loc, self.what, self.program, self.at)
    }
}
