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
    /// A barrier of a block: rank and number.
    Barrier(u8, u8),
    /// An mbarrier.
    Mbarrier(Key),
    /// The cluster's barrier.
    Cluster,
    /// A word of shared memory that strong accesses and atomics use.
    Address(Key),
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
    /// The asynchronous operations that the warp issued are done when the mbarrier says so.
    Completes(Key),
}
