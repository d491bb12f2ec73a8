//! What can be wrong with a kernel once rustc has accepted it: found while the kernel is built, at the user's line.

use std::fmt;
use tegula_ir::Loc;

/// One mistake in a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The user's line.
    pub loc: Loc,
    /// What was found and what would be right.
    pub message: String,
}

/// Why a kernel could not be built: every mistake found, in source order of discovery. Never empty. Its `Debug` is its
/// `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildError {
    /// The kernel.
    pub kernel: String,
    /// The mistakes.
    pub faults: Vec<Fault>,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}` cannot be built", self.kernel)?;
        for fault in &self.faults {
            if fault.loc.is_unknown() {
                write!(f, "\n  {}", fault.message)?;
            } else {
                write!(f, "\n  {}: {}", fault.loc, fault.message)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for BuildError {}
