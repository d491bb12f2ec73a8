//! The oracle: the specification by execution.
//!
//! [`run`] executes a kernel over raw memory, program by program, op by op, exactly as the op table says. Executors are
//! tested against it. It shares no arithmetic with folding, lowerings or emulators: its numbers are in `number`, the
//! meaning of elementwise ops is one table in `elementwise`, and the other files each hold a family of ops. Clear comes
//! before fast.
//!
//! Where the language leaves results open, the oracle gives the float64 reference: functions without an exact result and
//! float reductions and scans are computed in f64 and rounded once. Which NaN an operation makes is open too; compare
//! NaNs as equal.
//!
//! The *sanitizer* ([`Options::sanitize`]) also reports reads of memory that nothing wrote and races between programs.
//! *Checked* mode ([`Options::checked`]) reports indices outside a view and divisions without a result. Device asserts,
//! assumptions and `multiple_of` are always checked. Every fault is a value that names kernel, program, op, the user's
//! line and the element.

mod args;
mod axis;
mod dot;
mod elementwise;
mod error;
mod interp;
mod memory;
mod number;
mod shadow;
mod shape;
mod value;

pub use args::{OracleArg, PackedArg, ViewArg};
pub use error::{Access, ErrorDetails, Fault, OracleError, Program};
pub use value::element;

use crate::{kernel::Kernel, loc::Loc, ops::OpKind};
use std::collections::BTreeMap;

/// How to run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Report unwritten reads and races between programs.
    pub sanitize: bool,
    /// Report indices outside a view or tile, and integer divisions by zero or with overflow.
    pub checked: bool,
    /// In which order the programs of the grid run.
    pub order: Order,
    /// Most ops to execute, against endless loops. `None`: no limit.
    pub step_limit: Option<u64>,
}

impl Options {
    /// Sanitizer and checked mode.
    pub fn strict() -> Options {
        Options { sanitize: true, checked: true, ..Options::default() }
    }
}

/// The order of a grid's programs. Results that depend on it are a fault of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By program number.
    #[default]
    Ascending,
    /// The last first.
    Descending,
    /// A random order, the same for the same seed.
    Shuffled(u64),
    /// These program numbers, each once.
    Given(Vec<u64>),
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Programs run.
    pub programs: u64,
    /// Ops executed, by kind.
    pub ops: BTreeMap<OpKind, u64>,
    /// What `print` printed, in order of execution.
    pub printed: Vec<Printed>,
}

/// One execution of `print`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// By whom.
    pub program: Program,
    /// The user's line.
    pub loc: Loc,
    /// Message and operands.
    pub text: String,
}

/// Runs every program of the grid, one after the other. Memory named by `args` holds the results, also the partial ones
/// of a run that ends in an error. A grid with a zero does nothing.
///
/// # Errors
/// The kernel is not well-formed, an argument does not fit, or a fault of the kernel (see the module's page).
pub fn run(
    kernel: &Kernel,
    args: &mut [OracleArg<'_>],
    grid: [u32; 3],
    options: &Options,
) -> Result<Report, OracleError> {
    interp::run(kernel, args, grid, options)
}
