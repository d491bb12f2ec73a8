//! What a GPU's multiprocessor has, and how many programs it runs at once.
//!
//! Numbers from the table of compute capabilities in NVIDIA's CUDA programming guide; the rule is that of the occupancy
//! calculator: registers are given to warps 256 at a time, from the quarter of the multiprocessor in which the warp runs.

use std::fmt;

/// What a multiprocessor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The architecture, `sm_90a`.
    pub arch: &'static str,
    /// Warps at a time.
    pub warps: u32,
    /// Programs (blocks) at a time.
    pub blocks: u32,
    /// Shared memory in bytes, of which each program takes 1 KiB more than it asks for.
    pub shared: usize,
    /// Shared memory that one program may ask for, in bytes.
    pub shared_of_block: usize,
}

/// Ampere: A100.
pub const SM_80: Limits =
    Limits { arch: "sm_80", warps: 64, blocks: 32, shared: 164 << 10, shared_of_block: 163 << 10 };
/// Ada: L4, L40, RTX 4090.
pub const SM_89: Limits = Limits { arch: "sm_89", warps: 48, blocks: 24, shared: 100 << 10, shared_of_block: 99 << 10 };
/// Hopper: H100, H200.
pub const SM_90A: Limits =
    Limits { arch: "sm_90a", warps: 64, blocks: 32, shared: 228 << 10, shared_of_block: 227 << 10 };

/// Registers of a multiprocessor, all of which one program may have.
const REGISTERS: u32 = 64 << 10;
/// Parts of a multiprocessor, each with its own registers and warps.
const PARTS: u32 = 4;
/// Registers that a warp gets come in so many.
const REGISTER_UNIT: u32 = 256;
/// Shared memory that each program takes beyond what it asks for, and the unit in which it is given.
const SHARED_OVERHEAD: usize = 1 << 10;
const SHARED_UNIT: usize = 128;

/// What runs out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
    /// Places for warps.
    Warps,
    /// Places for programs.
    Programs,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Registers => "registers",
            Resource::SharedMemory => "shared memory",
            Resource::Warps => "warps",
            Resource::Programs => "programs",
        })
    }
}

/// How full a multiprocessor gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Programs at a time.
    pub programs: u32,
    /// Warps of them.
    pub warps: u32,
    /// What there would have to be more of, for another program.
    pub limit: Resource,
}

/// Why a program cannot run at all: it needs more of a resource than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a program needs {needed} {}, {} more than the {most} that it can have on {arch}", unit(.resource), .needed - .most)]
pub struct Excess {
    /// The resource.
    pub resource: Resource,
    /// What is needed of it.
    pub needed: u64,
    /// What there is.
    pub most: u64,
    /// The architecture.
    pub arch: &'static str,
}

fn unit(resource: &Resource) -> String {
    match resource {
        Resource::SharedMemory => "bytes of shared memory".into(),
        other => other.to_string(),
    }
}

impl Limits {
    /// Of the architecture of that name, if it is known.
    pub fn of(arch: &str) -> Option<Limits> {
        [SM_80, SM_89, SM_90A].into_iter().find(|l| l.arch == arch)
    }

    /// How many programs of so many warps, registers a thread and bytes of shared memory run at a time.
    ///
    /// # Errors
    /// Not even one does.
    pub fn occupancy(&self, warps: u32, registers: u32, shared: usize) -> Result<Occupancy, Excess> {
        let excess = |resource, needed: u64, most: u64| Err(Excess { resource, needed, most, arch: self.arch });
        let warps = warps.max(1);
        let most_warps = super::MAX_WARPS as u32;
        if warps > most_warps {
            return excess(Resource::Warps, warps.into(), most_warps.into());
        }
        if shared > self.shared_of_block {
            return excess(Resource::SharedMemory, shared as u64, self.shared_of_block as u64);
        }
        let of_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
        let needed = u64::from(of_warp) * u64::from(warps.next_multiple_of(PARTS));
        if needed > u64::from(REGISTERS) {
            return excess(Resource::Registers, needed, REGISTERS.into());
        }
        let by_registers = REGISTERS / PARTS / of_warp * PARTS / warps;
        let by_shared = self.shared / (shared + SHARED_OVERHEAD).next_multiple_of(SHARED_UNIT);
        let by = [
            (self.blocks, Resource::Programs),
            (self.warps / warps, Resource::Warps),
            (by_registers, Resource::Registers),
            (by_shared as u32, Resource::SharedMemory),
        ];
        // The first of equals: a kernel that took less would win nothing where all places are taken.
        let (programs, limit) = by.into_iter().min_by_key(|(n, _)| *n).unwrap_or(by[0]);
        Ok(Occupancy { programs, warps: programs * warps, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rows of NVIDIA's occupancy calculator.
    #[test]
    fn occupancy_is_that_of_the_calculator() {
        let of = |l: Limits, warps, registers, shared| {
            let o = l.occupancy(warps, registers, shared).unwrap();
            (o.programs, o.warps, o.limit)
        };
        assert_eq!(of(SM_80, 8, 32, 0), (8, 64, Resource::Warps));
        assert_eq!(of(SM_80, 4, 255, 0), (2, 8, Resource::Registers));
        assert_eq!(of(SM_80, 4, 128, 0), (4, 16, Resource::Registers));
        assert_eq!(of(SM_80, 1, 16, 0), (32, 32, Resource::Programs));
        assert_eq!(of(SM_80, 5, 96, 0), (4, 20, Resource::Registers));
        assert_eq!(of(SM_80, 4, 32, 48 << 10), (3, 12, Resource::SharedMemory));
        assert_eq!(of(SM_80, 4, 32, 163 << 10), (1, 4, Resource::SharedMemory));
        assert_eq!(of(SM_89, 8, 32, 0), (6, 48, Resource::Warps));
        assert_eq!(of(SM_89, 32, 32, 0), (1, 32, Resource::Warps));
        assert_eq!(of(SM_90A, 4, 168, 64 << 10), (3, 12, Resource::Registers));
        assert_eq!(of(SM_90A, 12, 168, 200 << 10), (1, 12, Resource::Registers));
    }

    #[test]
    fn what_cannot_run_names_the_resource_and_the_excess() {
        let error =
            |l: Limits, warps, registers, shared| l.occupancy(warps, registers, shared).unwrap_err().to_string();
        assert_eq!(
            error(SM_80, 16, 255, 0),
            "a program needs 131072 registers, 65536 more than the 65536 that it can have on sm_80"
        );
        assert_eq!(
            error(SM_89, 4, 32, 100 << 10),
            "a program needs 102400 bytes of shared memory, 1024 more than the 101376 that it can have on sm_89"
        );
        assert!(error(SM_90A, 33, 32, 0).starts_with("a program needs 33 warps, 1 more than the 32"));
    }

    proptest! {
        /// What is said to run fits, by a count of its own, and one program more does not.
        #[test]
        fn one_more_program_does_not_fit(which in 0usize..3, warps in 1u32..33, registers in 16u32..256, shared in 0usize..240_000) {
            let l = [SM_80, SM_89, SM_90A][which];
            let Ok(o) = l.occupancy(warps, registers, shared) else { return Ok(()) };
            let fits = |n: u32| {
                // Warps that the registers of a quarter are enough for.
                let quarter = 16384 / (registers.div_ceil(8) * 256);
                n <= l.blocks
                    && n * warps <= l.warps.min(4 * quarter)
                    && n as usize * (shared + 1024).div_ceil(128) * 128 <= l.shared
            };
            prop_assert!(o.programs >= 1 && fits(o.programs) && !fits(o.programs + 1), "{o:?}");
        }
    }
}
