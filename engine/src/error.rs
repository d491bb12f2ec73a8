//! The engine's one error type: everything a caller of the library or a user of the command may have to be told.

use std::fmt;
use std::io;

/// What went wrong. The text says what, where, and what would be right.
#[derive(thiserror::Error)]
pub enum Error {
    /// A model file that cannot be used.
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
    /// A conversation that cannot be turned into a prompt.
    #[error(transparent)]
    Chat(#[from] crate::chat::ChatError),
    /// A model that could not be fetched.
    #[error(transparent)]
    Pull(#[from] crate::pull::PullError),
    /// Memory for a tensor could not be had.
    #[error(transparent)]
    Tensor(#[from] tegula::TensorError),
    /// A kernel was refused, or failed.
    #[error(transparent)]
    Launch(#[from] tegula::LaunchError),
    /// Weights could not be packed.
    #[error(transparent)]
    Pack(#[from] tegula_kernels::pack::PackError),
    /// There is no such kernel in the library.
    #[error(transparent)]
    Kernel(#[from] tegula_kernels::registry::RegistryError),
    /// A kernel could not be compiled.
    #[error(transparent)]
    Compile(#[from] tegula::compile::CompileError),
    /// Kernels could not be loaded.
    #[error(transparent)]
    Device(#[from] tegula::DeviceError),
    /// A bundle of kernels cannot be used.
    #[error(transparent)]
    Bundle(#[from] tegula::bundle::BundleError),
    /// A bundle of kernels cannot be made.
    #[error(transparent)]
    Make(#[from] tegula::bundle::MakeError),
    /// A bundle of kernels cannot be put together or written.
    #[error(transparent)]
    Builder(#[from] tegula::bundle::BuilderError),
    /// A model gave no logits that a token could be chosen by.
    #[error(
        "no token can be chosen at position {position}: the model's logits are all NaN or −∞. Its file is damaged, or its \
         numbers are not those of its architecture"
    )]
    NoLogits {
        /// Of the token in its sequence.
        position: usize,
    },
    /// A sampling parameter that cannot be.
    #[error(transparent)]
    Param(#[from] crate::sampling::ParamError),
    /// A step of the engine that cannot be run as it is: no caller's fault.
    #[error("a step that cannot be: {0}")]
    Step(String),
    /// Arguments that are well-formed and still make no sense.
    #[error("{0}")]
    Usage(String),
    /// Reading input or writing output failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, as in "reading standard input".
        doing: &'static str,
        source: io::Error,
    },
}

/// As [`fmt::Display`]: a `main` that returns a `Result` shows it so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err` where standard output is written.
    pub fn output(source: io::Error) -> Error {
        Error::Io { doing: "writing the output", source }
    }
}
