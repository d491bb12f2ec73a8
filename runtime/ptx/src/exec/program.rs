//! The decoded form of a kernel: a flat list of instructions, its functions' ones included.

use super::{
    op::Op,
    regs::{PredIn, Row, Slot},
};
use crate::{counters::Kind, text::ast::Loc};

/// One instruction, ready to run.
pub struct Inst {
    /// What it does.
    pub op: Box<dyn Op>,
    /// Guard predicate.
    pub guard: Option<PredIn>,
    /// For counting.
    pub kind: Kind,
    /// PTX line.
    pub line: u32,
    /// Source place.
    pub loc: Option<Loc>,
    /// Whether strict mode must look at `suspect` and `tracked`.
    pub track: bool,
    /// Tracked registers that it reads and that may hold nothing yet on some path, with their names.
    pub suspect: Box<[(u32, String)]>,
    /// Tracked registers that it writes.
    pub tracked: Box<[u32]>,
    /// Registers that it touches and that wgmma may hold, with their names and whether it writes them.
    pub held: Box<[(Slot, String, bool)]>,
    /// Whether it copies its sources' state (mov and friends) instead of demanding initialised ones.
    pub copies: bool,
}

/// Something that fills a row when a warp starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// The same 32 bits in every lane.
    Bits32(u32),
    /// The same 64 bits in every lane.
    Bits64(u64),
    /// The same 128 bits in every lane.
    Bits128(u128),
    /// A special register.
    Special(Special),
    /// The address of a module variable (by its index) plus an offset, as 32 or 64 bits.
    Variable {
        /// Index in the module.
        index: usize,
        /// Bytes to add.
        offset: i64,
        /// A 64-bit row?
        wide: bool,
    },
    /// A shared address: static offset, or from the start of dynamic shared memory.
    Shared {
        /// Bytes from the start.
        offset: i64,
        /// Whether `offset` counts from the dynamic part.
        dynamic: bool,
        /// A 64-bit row?
        wide: bool,
    },
}

impl Constant {
    /// Rows that it fills.
    pub fn rows(&self) -> u32 {
        match self {
            Constant::Bits32(_) | Constant::Special(_) => 1,
            Constant::Bits64(_) => 2,
            Constant::Bits128(_) => 4,
            Constant::Variable { wide, .. } | Constant::Shared { wide, .. } => 1 + *wide as u32,
        }
    }
}

/// Special registers that do not change while a warp runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    Laneid,
    Warpid,
    Nwarpid,
    Smid,
    Nsmid,
    Gridid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    DynamicSmemSize,
    TotalSmemSize,
    AggrSmemSize,
}

/// A decoded kernel.
pub struct Program {
    /// Its name.
    pub entry: String,
    /// All instructions: the kernel's, then its functions'.
    pub code: Vec<Inst>,
    /// The instructions as written, for messages; parallel to `code`.
    pub text: Vec<String>,
    /// Rows of registers, before the constant rows.
    pub register_rows: u32,
    /// Predicate registers.
    pub preds: u32,
    /// Rows to fill when a warp starts.
    pub constants: Vec<(Slot, Constant)>,
    /// All rows.
    pub rows: u32,
    /// Bytes of local memory (with the functions' parameters) of a thread.
    pub local_bytes: usize,
    /// Bytes of static shared memory.
    pub static_shared: usize,
    /// Alignment of dynamic shared memory.
    pub dynamic_align: usize,
    /// Where each parameter starts, and its bytes.
    pub params: Vec<ParamSlot>,
    /// Bytes of all parameters.
    pub param_bytes: usize,
    /// `.reqntid`, `.maxntid`, `.reqnctapercluster`, `.explicitcluster`.
    pub limits: Limits,
    /// `.file` paths.
    pub files: std::collections::HashMap<u32, String>,
    /// Registers whose initialisation is tracked in strict mode.
    pub tracked_registers: u32,
    /// In which order diverged lanes run.
    pub order: crate::decode::order::Order,
}

/// One parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSlot {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the parameter block.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
}

/// What the kernel's directives demand of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.reqntid`: the block must have this shape.
    pub required_threads: Option<[u32; 3]>,
    /// `.maxntid`: product of the extents that a block may have.
    pub max_threads: Option<u32>,
    /// `.reqnctapercluster`.
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`.
    pub max_cluster: Option<u32>,
    /// `.maxnreg`.
    pub max_registers: Option<u32>,
}

/// A zero row.
pub const ZERO: Row = Row([0; 32]);
