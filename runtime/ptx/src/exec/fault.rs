//! What can go wrong during a launch, with who and where.

use std::fmt;

/// The rule a kernel broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Access outside of every allocation, or to freed memory.
    Bounds,
    /// Address no multiple of the access size.
    Alignment,
    /// Read of memory or a register that nothing wrote.
    Uninitialised,
    /// Write to constant or parameter memory.
    ReadOnly,
    /// Nobody can go on.
    Deadlock,
    /// A barrier or `.aligned` instruction used against its rules.
    Synchronisation,
    /// Two threads touch the same bytes without order.
    Race,
    /// Use of an asynchronous result too early.
    Asynchronous,
    /// `trap`, a failed assertion, `brkpt`.
    Trap,
    /// An instruction with operands it does not allow.
    Operand,
    /// More instructions than [`crate::Options::limit`].
    Limit,
    /// The launch itself: unknown entry, parameters, sizes.
    Launch,
}

/// A kernel's error. [`fmt::Display`] gives the whole story in a few lines.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The rule that was broken.
    pub kind: FaultKind,
    /// What happened and what would be right.
    pub message: String,
    /// Entry name.
    pub entry: String,
    /// Lane in the warp, when one lane is to blame.
    pub lane: Option<u32>,
    /// Warp in the block.
    pub warp: Option<u32>,
    /// `%tid` of that lane.
    pub thread: Option<[u32; 3]>,
    /// `%ctaid`.
    pub block: Option<[u32; 3]>,
    /// PTX line; 0 where there is none.
    pub line: u32,
    /// The instruction as written.
    pub instruction: String,
    /// `file:line:column` of the kernel's source, from `.loc`.
    pub source: Option<String>,
    /// What the kernel printed before.
    pub output: String,
}

impl Fault {
    /// A fault whose place is not yet known: the scheduler fills it in.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault {
            kind,
            message: message.into(),
            entry: String::new(),
            lane: None,
            warp: None,
            thread: None,
            block: None,
            line: 0,
            instruction: String::new(),
            source: None,
            output: String::new(),
        })
    }

    /// Blames one lane.
    pub fn at_lane(mut self: Box<Self>, lane: usize) -> Box<Fault> {
        self.lane = Some(lane as u32);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: {}", self.entry, self.message)?;
        if let Some([x, y, z]) = self.block {
            write!(f, "\n  block ({x}, {y}, {z})")?;
            if let Some([x, y, z]) = self.thread {
                write!(f, ", thread ({x}, {y}, {z})")?;
            }
            if let Some(warp) = self.warp {
                write!(f, ", warp {warp}")?;
            }
            if let Some(lane) = self.lane {
                write!(f, ", lane {lane}")?;
            }
        }
        if self.line > 0 {
            write!(f, "\n  PTX line {}: {}", self.line, self.instruction)?;
        }
        if let Some(source) = &self.source {
            write!(f, "\n  source {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
