//! The engine's one error type: everything a caller of the library or a user of the command may have to be told.

use std::io;

/// What went wrong. The text says what, where, and what would be right.
#[derive(Debug, thiserror::Error)]
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

impl Error {
    /// For `map_err` where standard output is written.
    pub fn output(source: io::Error) -> Error {
        Error::Io { doing: "writing the output", source }
    }
}
