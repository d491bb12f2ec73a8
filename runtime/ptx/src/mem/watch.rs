//! What the detector of races ([`super::races`]) hears of: accesses to shared memory and what orders them.

use crate::exec::in_flight::Key;

/// How shared memory is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// A plain load.
    Read,
    /// A plain load of which only the bytes of this mask matter: compilers widen loads over gaps.
    ReadSome(u32),
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
    /// A write by the asynchronous proxy (bulk copies).
    AsyncWrite,
    /// A write by cp.async.
    CopyWrite,
    /// Something with its own rules that neither reads nor writes data (mbarriers).
    Sync,
}

impl Touch {
    /// Whether it reads.
    pub fn reads(self) -> bool {
        matches!(self, Touch::Read | Touch::ReadSome(_) | Touch::StrongRead | Touch::Atomic | Touch::AsyncRead)
    }

    /// Whether it writes.
    pub fn writes(self) -> bool {
        matches!(self, Touch::Write | Touch::StrongWrite | Touch::Atomic | Touch::AsyncWrite | Touch::CopyWrite)
    }
}

/// What threads meet at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sync {
    /// A barrier of a block: rank, number, generation.
    Barrier(u8, u8, u32),
    /// A phase of an mbarrier.
    Mbarrier(Key, u64),
    /// A generation of the cluster's barrier.
    Cluster(u32),
    /// A word of shared memory that strong accesses and atomics use.
    Address(Key),
}

impl Sync {
    /// The meeting before at the same place.
    pub fn before(self) -> Option<Sync> {
        match self {
            Sync::Barrier(rank, id, generation) => Some(Sync::Barrier(rank, id, generation.wrapping_sub(1))),
            Sync::Mbarrier(key, phase) => phase.checked_sub(1).map(|p| Sync::Mbarrier(key, p)),
            Sync::Cluster(generation) => Some(Sync::Cluster(generation.wrapping_sub(1))),
            Sync::Address(_) => None,
        }
    }
}

/// Something that orders a warp's doings with others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// What the warp did is before what acquires here.
    Release(Sync),
    /// What was released here is before what the warp does next.
    Acquire(Sync),
    /// The warp's fence of the asynchronous proxy.
    ProxyFence,
    /// The warp has waited for its asynchronous operations.
    Waited,
    /// The asynchronous operations that the warp issued are done when that phase of the mbarrier is over.
    Completes(Key, u64),
}
