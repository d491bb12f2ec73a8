//! What can go wrong, as values that name kernel, program, op, the user's line and the element.

use crate::loc::Loc;
use std::{fmt, ops::Deref};

/// A fault found while running a kernel, with its [details](ErrorDetails).
#[derive(Clone, Debug, PartialEq)]
pub struct OracleError(Box<ErrorDetails>);

/// What went wrong, where.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorDetails {
    /// Kernel.
    pub kernel: String,
    /// The program that was running; none for a fault found before the first.
    pub program: Option<Program>,
    /// Name of the op; empty for a fault found before the first.
    pub op: &'static str,
    /// The user's line.
    pub loc: Loc,
    /// Where: the position in the view, or in the tile when no view is involved.
    pub element: Option<Vec<i64>>,
    /// What.
    pub fault: Fault,
}

/// One program of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// `p0 + g0 * (p1 + g1 * p2)`.
    pub id: u64,
    /// The program's index along each grid axis.
    pub at: [u32; 3],
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// The kernel is not well-formed.
    Invalid(String),
    /// An argument does not fit its parameter.
    Argument {
        /// Name of the parameter.
        name: String,
        /// What was expected, what was found.
        message: String,
    },
    /// More programs or elements than the oracle takes on.
    TooLarge(String),
    /// [`Options::step_limit`](super::Options::step_limit) ran out.
    StepLimit(u64),
    /// Checked mode: an index outside the view or tile.
    OutOfRange {
        /// Name of the view's parameter, or `tile`.
        name: String,
        /// Its extents.
        extents: Vec<i64>,
    },
    /// Sanitizer: read of an element that nothing wrote.
    Unwritten(String),
    /// Sanitizer: two programs touch one element, at least one writes it, and nothing orders them.
    Race {
        /// Name of the view's parameter.
        name: String,
        /// What this program does.
        access: Access,
        /// What the other did.
        earlier: Access,
        /// The other program's number.
        other: u64,
    },
    /// Checked mode: integer division by zero.
    DivisionByZero,
    /// Checked mode: the least integer divided by −1.
    DivisionOverflow,
    /// A device assert with its message.
    Assert(String),
    /// An assumption does not hold.
    Assume,
    /// `multiple_of` of a value that is none.
    NotMultiple {
        /// The value.
        value: i128,
        /// The divisor.
        n: i64,
    },
    /// A loop's step is not positive.
    BadStep(i128),
    /// `packed_load` at a position that is no multiple of the rectangle's extents.
    Misaligned(String),
}

/// How memory was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Plain read.
    Read,
    /// Plain write.
    Write,
    /// Atomic read-modify-write.
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "written",
            Access::Atomic => "changed atomically",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Invalid(m) | Fault::TooLarge(m) | Fault::Misaligned(m) => f.write_str(m),
            Fault::Argument { name, message } => write!(f, "argument `{name}`: {message}"),
            Fault::StepLimit(n) => write!(f, "still running after {n} steps: an endless loop?"),
            Fault::OutOfRange { name, extents } => write!(f, "index outside `{name}`, whose extents are {extents:?}"),
            Fault::Unwritten(name) => write!(f, "`{name}` is read here, but nothing wrote it"),
            Fault::Race { name, access, earlier, other } => {
                write!(f, "`{name}` is {access} here and was {earlier} by program {other}: programs run in any order")
            }
            Fault::DivisionByZero => f.write_str("integer division by zero"),
            Fault::DivisionOverflow => f.write_str("the least integer divided by -1 overflows"),
            Fault::Assert(m) => write!(f, "assertion failed: {m}"),
            Fault::Assume => f.write_str("an assumption does not hold"),
            Fault::NotMultiple { value, n } => write!(f, "{value} is no multiple of {n}"),
            Fault::BadStep(s) => write!(f, "a loop's step must be positive, found {s}"),
        }
    }
}

impl fmt::Display for OracleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.op.is_empty() {
            write!(f, "{}: `{}` in ", self.loc, self.op)?;
        }
        write!(f, "kernel `{}`", self.kernel)?;
        if let Some(p) = self.program {
            write!(f, ", program {} {:?}", p.id, p.at)?;
        }
        if let Some(e) = &self.element {
            write!(f, ", element {e:?}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::error::Error for OracleError {}

impl From<ErrorDetails> for OracleError {
    fn from(details: ErrorDetails) -> OracleError {
        OracleError(Box::new(details))
    }
}

impl Deref for OracleError {
    type Target = ErrorDetails;
    fn deref(&self) -> &ErrorDetails {
        &self.0
    }
}

/// A fault before its op and program are known.
#[derive(Debug)]
pub(super) struct Trap {
    pub fault: Fault,
    pub element: Option<Vec<i64>>,
}

impl From<Fault> for Trap {
    fn from(fault: Fault) -> Trap {
        Trap { fault, element: None }
    }
}

impl Fault {
    pub(super) fn at(self, element: Vec<i64>) -> Trap {
        Trap { fault: self, element: Some(element) }
    }
}
