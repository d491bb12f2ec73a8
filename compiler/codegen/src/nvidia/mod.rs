//! NVIDIA's own tools, which are proprietary and may be absent: from PTX to machine code, and to its text.
//!
//! - [`tool`]: finding and running them;
//! - [`ptxas`]: PTX to a cubin, and what it needs;
//! - [`sass`]: a cubin to text.

pub mod ptxas;
pub mod sass;
pub mod tool;

use tegula_ir::Loc;

/// Why there is no machine code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// The tool: `ptxas` or `nvdisasm`.
    pub tool: &'static str,
    /// What is wrong.
    pub message: String,
    /// The user's line, if it is known.
    pub loc: Option<Loc>,
}
