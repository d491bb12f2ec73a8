//! What can go wrong between MLIR and a shared object, as values.

use std::fmt;

/// One message of MLIR or LLVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where, as MLIR prints locations (`"kernel.rs":12:9`); empty when unknown.
    pub place: String,
    /// What, with the notes that belong to it on lines of their own.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.place, self.message) }
    }
}

/// A failure below lowering. Except for [`Error::Target`] and [`Error::Linker`], each means a defect of a lowering.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// MLIR refused the module: parsing, verification, a pass, or translation to LLVM IR.
    #[error("{stage} failed{}", list(.diagnostics))]
    Mlir { stage: &'static str, diagnostics: Vec<Diagnostic> },
    /// LLVM refused the module.
    #[error("{stage} failed{}", list(.diagnostics))]
    Llvm { stage: &'static str, diagnostics: Vec<Diagnostic> },
    /// An unknown instruction set or feature.
    #[error("{0}")]
    Target(String),
    /// lld is missing, or it did not run.
    #[error("{0}")]
    Linker(String),
    /// lld refused the object: `message` is what it said.
    #[error("linking the kernel failed\n  {}", .0.replace('\n', "\n  "))]
    Link(String),
}

fn list(diagnostics: &[Diagnostic]) -> String {
    let mut text = String::from(if diagnostics.is_empty() { " (it gave no reason)" } else { "" });
    for d in diagnostics {
        text.push_str("\n  ");
        text.push_str(&d.to_string().replace('\n', "\n    "));
    }
    text
}
