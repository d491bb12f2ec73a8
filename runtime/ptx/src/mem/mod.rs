//! Memory: the address map, global allocations, shared memory, and the access path that checks every lane.
//!
//! A generic address is 64 bits; its bits from 44 up name the window: 1 shared, 2 local, 3 kernel parameters, anything
//! else global (constant memory is global memory that is read-only). Offsets inside a window are what `.shared`,
//! `.local` and `.param` addresses hold.
//!
//! A shared address is 32 bits. Its top byte is 0 for the executing block's own memory, or 1 + rank for that of a block
//! of the cluster (`mapa`).

pub mod access;
pub mod global;
pub mod races;
pub mod shared;
pub mod traffic;
pub mod watch;

/// Bits of an offset inside a window.
pub const WINDOW_BITS: u32 = 44;
/// Window number of shared memory.
pub const SHARED_WINDOW: u64 = 1;
/// Window number of local memory.
pub const LOCAL_WINDOW: u64 = 2;
/// Window number of kernel parameters.
pub const PARAM_WINDOW: u64 = 3;
/// The first global address.
pub const GLOBAL_BASE: u64 = 0x10_0000_0000;
/// The first shared address of a block: low addresses stay unused, so that a null pointer is an error.
pub const SHARED_BASE: u64 = 0x400;
/// The first local address of a thread.
pub const LOCAL_BASE: u64 = 0x100;
/// Bits of a shared offset below the block's number.
pub const RANK_SHIFT: u32 = 24;

/// The space an instruction names, or a generic address falls in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Space {
    Generic,
    Global,
    Const,
    Shared,
    Local,
    Param,
}

impl Space {
    /// Its window number; global has none.
    pub fn window(self) -> Option<u64> {
        match self {
            Space::Shared => Some(SHARED_WINDOW),
            Space::Local => Some(LOCAL_WINDOW),
            Space::Param => Some(PARAM_WINDOW),
            _ => None,
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Space::Generic => "generic",
            Space::Global => "global",
            Space::Const => "constant",
            Space::Shared => "shared",
            Space::Local => "local",
            Space::Param => "parameter",
        }
    }
}

/// The space that a generic address falls in.
#[inline(always)]
pub fn space_of(address: u64) -> Space {
    match address >> WINDOW_BITS {
        SHARED_WINDOW => Space::Shared,
        LOCAL_WINDOW => Space::Local,
        PARAM_WINDOW => Space::Param,
        _ => Space::Global,
    }
}
