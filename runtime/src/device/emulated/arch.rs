//! Which GPUs are emulated.

/// An architecture that kernels are compiled for and the emulator plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Ampere's A100.
    Sm80,
    /// Hopper's H100 and H200.
    Sm90a,
}

impl Arch {
    /// Every architecture.
    pub const ALL: &'static [Arch] = &[Arch::Sm80, Arch::Sm90a];

    /// The name in targets.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm80 => "sm_80",
            Arch::Sm90a => "sm_90a",
        }
    }

    /// Its compute capability.
    pub const fn capability(self) -> (u32, u32) {
        match self {
            Arch::Sm80 => (8, 0),
            Arch::Sm90a => (9, 0),
        }
    }

    /// The architecture of that name.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.iter().copied().find(|a| a.name() == name)
    }

    /// Shared memory that a block may have, in bytes.
    pub const fn shared_bytes(self) -> usize {
        match self {
            Arch::Sm80 => 163 << 10,
            Arch::Sm90a => 227 << 10,
        }
    }
}
