//! What can go wrong when a kernel is compiled.

use std::path::PathBuf;
use tegula_ir::Loc;

/// Why there is no compiled kernel.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The compiler program is not there.
    #[error(
        "the kernel compiler `tegulac` was not found (looked for it at: {}). Build it with `cargo build -p tegula-codegen`, \
         install it with `cargo install tegula-codegen`, or say where it is: TEGULAC=/path/to/tegulac",
        .looked.join(", ")
    )]
    NotFound {
        /// Where it was looked for, in order.
        looked: Vec<String>,
    },
    /// It is there but cannot be used.
    #[error("cannot use the kernel compiler {}: {why}", .program.display())]
    Unusable {
        /// Its path.
        program: PathBuf,
        /// What happened.
        why: String,
    },
    /// The compiler says what is wrong with the kernel.
    #[error(
        "kernel `{kernel}` does not compile for {target}: {}{message} ({stage})",
        .loc.as_ref().map(|l| format!("{l}: ")).unwrap_or_default()
    )]
    Rejected {
        /// The kernel's name.
        kernel: String,
        /// The target.
        target: Box<str>,
        /// Where the compiler stopped.
        stage: String,
        /// What it says.
        message: String,
        /// The line to blame, if one is.
        loc: Option<Loc>,
    },
    /// The compiler died, hung or answered nonsense.
    #[error(
        "the compiler failed on kernel `{kernel}` for {target}: {what}{}{}",
        .saved.as_ref().map(|p| format!("; the kernel's IR is saved in {}", p.display())).unwrap_or_default(),
        if .said.is_empty() { String::new() } else { format!("; its last words:\n{}", .said) }
    )]
    Crashed {
        /// The kernel's name.
        kernel: String,
        /// The target.
        target: Box<str>,
        /// What happened to the process.
        what: String,
        /// The end of what it wrote to standard error.
        said: String,
        /// A file with the kernel's IR, to reproduce the failure, if it could be written.
        saved: Option<PathBuf>,
    },
}

crate::readable_debug!(CompileError);
