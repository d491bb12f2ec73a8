//! Where a detector of shared-memory races listens.
//!
//! Every access of a warp to shared memory, and every event that orders threads, passes here when a watch is installed
//! in [`crate::exec::cta::Cta::watch`]; without one it costs a test of a pointer.

use crate::exec::fault::Fault;

/// How shared memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A plain load.
    Read,
    /// A plain store.
    Write,
    /// A load with a memory order (`.relaxed`, `.acquire`, `.volatile`).
    StrongRead,
    /// A store with a memory order (`.relaxed`, `.release`, `.volatile`).
    StrongWrite,
    /// An atomic read-modify-write.
    Atomic,
    /// A read by the asynchronous proxy (bulk copies out of shared memory, wgmma).
    AsyncRead,
    /// A write by the asynchronous proxy or by cp.async.
    AsyncWrite,
}

impl Touch {
    /// Whether it reads.
    pub fn reads(self) -> bool {
        matches!(self, Touch::Read | Touch::StrongRead | Touch::Atomic | Touch::AsyncRead)
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::StrongWrite | Touch::Atomic | Touch::AsyncWrite)
    }
}

/// One warp's access.
#[derive(Clone, Copy, Debug)]
pub struct Touched<'a> {
    /// What it does.
    pub touch: Touch,
    /// Rank in the cluster of the block whose memory it is.
    pub owner: usize,
    /// Rank of the block that accesses.
    pub rank: usize,
    /// Warp in that block.
    pub warp: u32,
    /// Lanes that access.
    pub mask: u32,
    /// Offsets from the start of the block's shared memory, per lane.
    pub offsets: &'a [u64; 32],
    /// Bytes per lane.
    pub bytes: usize,
    /// PTX line.
    pub line: u32,
}

/// Something that orders a block's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All warps of `warps` (a mask) met at a barrier.
    Barrier {
        /// Those warps.
        warps: u32,
    },
    /// `bar.warp.sync`, a vote or another warp-wide meeting of `mask`'s lanes.
    Warp {
        /// The warp.
        warp: u32,
        /// Lanes that met.
        mask: u32,
    },
    /// A warp's fence of the asynchronous proxy.
    ProxyFence {
        /// The warp.
        warp: u32,
    },
}

/// A detector. One is made per block.
pub trait Watch: Send {
    /// A warp accesses shared memory; an error ends the launch.
    fn touched(&mut self, access: &Touched<'_>) -> Result<(), Box<Fault>>;
    /// Threads were ordered.
    fn ordered(&mut self, order: Order);
}
