//! What a launch did: warp instructions by kind, memory traffic, tensor-core work.

/// What an instruction is, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Kind {
    Integer,
    Float,
    Half,
    Convert,
    /// ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt, div.
    Special,
    Compare,
    Move,
    Control,
    LoadGlobal,
    StoreGlobal,
    LoadShared,
    StoreShared,
    LoadOther,
    StoreOther,
    Atomic,
    AsyncCopy,
    BulkCopy,
    Matrix,
    MatrixMove,
    Shuffle,
    Barrier,
    Fence,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Kind; 22] = [
        Kind::Integer,
        Kind::Float,
        Kind::Half,
        Kind::Convert,
        Kind::Special,
        Kind::Compare,
        Kind::Move,
        Kind::Control,
        Kind::LoadGlobal,
        Kind::StoreGlobal,
        Kind::LoadShared,
        Kind::StoreShared,
        Kind::LoadOther,
        Kind::StoreOther,
        Kind::Atomic,
        Kind::AsyncCopy,
        Kind::BulkCopy,
        Kind::Matrix,
        Kind::MatrixMove,
        Kind::Shuffle,
        Kind::Barrier,
        Kind::Fence,
    ];
}

/// The sums of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Warp instructions per [`Kind`], indexed by its number. A guarded instruction counts when any lane executes it.
    pub instructions: [u64; Kind::ALL.len()],
    /// Global loads and stores (warp requests).
    pub global_requests: u64,
    /// 32-byte sectors that they touch; 4 per request of 4 bytes a lane is the least.
    pub global_sectors: u64,
    /// The least sectors that would carry the same bytes.
    pub global_sectors_ideal: u64,
    /// Shared-memory loads and stores (warp requests).
    pub shared_requests: u64,
    /// Passes over the 32 banks that they take.
    pub shared_wavefronts: u64,
    /// Passes that conflict-free access to the same bytes would take.
    pub shared_wavefronts_ideal: u64,
    /// Multiply-adds of mma and wgmma, counted as two each.
    pub tensor_flops: u64,
}

impl Counters {
    /// Warp instructions of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.instructions[kind as usize]
    }

    /// All warp instructions.
    pub fn total(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// Adds another launch's or thread's sums.
    pub fn add(&mut self, other: &Counters) {
        for (a, b) in self.instructions.iter_mut().zip(&other.instructions) {
            *a += b;
        }
        self.global_requests += other.global_requests;
        self.global_sectors += other.global_sectors;
        self.global_sectors_ideal += other.global_sectors_ideal;
        self.shared_requests += other.shared_requests;
        self.shared_wavefronts += other.shared_wavefronts;
        self.shared_wavefronts_ideal += other.shared_wavefronts_ideal;
        self.tensor_flops += other.tensor_flops;
    }
}
