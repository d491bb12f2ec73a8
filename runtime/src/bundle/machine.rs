//! What kernels must run on, and which artifacts run there.

use crate::device::Level;
use serde::{Deserialize, Serialize};
use std::fmt;
use tegula_ir::layout::Layout;

/// What an artifact is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A shared object for a CPU.
    SharedObject,
    /// PTX, as text: the driver compiles it for its GPU.
    Ptx,
    /// Machine code for one GPU architecture.
    Cubin,
}

impl Kind {
    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::SharedObject => "so",
            Kind::Ptx => "ptx",
            Kind::Cubin => "cubin",
        }
    }
}

/// What a kernel must run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// A processor. It takes shared objects of its level, then of lower ones that it supports.
    Cpu(Level),
    /// A GPU. It takes the cubin of exactly its architecture, then PTX of that architecture, then PTX of `sm_80`, which
    /// every later GPU can translate.
    Gpu {
        /// For messages: `emulated:sm_80`, `NVIDIA H100`.
        name: String,
        /// What its kernels are compiled for where there is a compiler: `sm_90a`.
        target: String,
        /// Its compute capability: (9, 0).
        capability: (u32, u32),
        /// Whether it runs machine code; an emulator does not.
        cubins: bool,
    },
}

/// What every GPU since Ampere can translate.
const COMMON: &str = "sm_80";

impl Machine {
    /// What the compiler is asked for.
    pub fn target(&self) -> String {
        match self {
            Machine::Cpu(level) => format!("cpu:{}", level.name()),
            Machine::Gpu { target, .. } => target.clone(),
        }
    }

    /// Whether machine code for its target runs on it. Where kernels are compiled for what every GPU has, the driver makes
    /// machine code of PTX.
    pub(crate) fn makes_cubins(&self) -> bool {
        match self {
            Machine::Cpu(_) => false,
            Machine::Gpu { cubins, capability, target, .. } => {
                let made_for = Machine::of_target(target).ok();
                *cubins
                    && matches!(made_for, Some(Machine::Gpu { capability: (major, _), .. }) if major == capability.0)
            }
        }
    }

    /// A machine that is compiled for a target: `cpu:x86-64-v3`, `sm_90a`.
    ///
    /// # Errors
    /// That is no target; the text says what one looks like.
    pub fn of_target(target: &str) -> Result<Machine, String> {
        let level = target.strip_prefix("cpu:").and_then(Level::from_name).map(Machine::Cpu);
        let gpu = || {
            let name = target.strip_prefix("sm_")?;
            let digits = name.strip_suffix(['a', 'f']).unwrap_or(name);
            let number: u32 = digits.parse().ok().filter(|_| digits.len() <= 4)?;
            let capability = (number / 10, number % 10);
            Some(Machine::Gpu { name: target.into(), target: target.into(), capability, cubins: true })
        };
        level.or_else(gpu).ok_or_else(|| {
            let levels = Level::ALL.iter().map(|l| format!("cpu:{}", l.name())).collect::<Vec<_>>().join(", ");
            format!("target: expected one of {levels}, or a GPU's such as sm_80 or sm_90a; found `{target}`")
        })
    }

    /// The layout in which its kernels read packed weights.
    pub fn layout(&self) -> Layout {
        match self {
            Machine::Cpu(_) => Layout::Panel16,
            Machine::Gpu { .. } => Layout::Gguf,
        }
    }

    /// The artifacts that it can run, best first: what they were compiled for, and what they are.
    pub fn takes(&self) -> impl Iterator<Item = (String, Kind)> {
        match self {
            Machine::Cpu(level) => cpu(*level, Level::is_supported),
            Machine::Gpu { capability, cubins, .. } => gpu(*capability, *cubins),
        }
        .into_iter()
    }
}

/// For a processor that is to be used at `level` at most, and `has` these levels.
fn cpu(level: Level, has: impl Fn(Level) -> bool) -> Vec<(String, Kind)> {
    let levels = Level::ALL.iter().rev().filter(|l| **l == level || **l < level && has(**l));
    levels.map(|l| (format!("cpu:{}", l.name()), Kind::SharedObject)).collect()
}

/// For a GPU of a compute capability.
fn gpu((major, minor): (u32, u32), cubins: bool) -> Vec<(String, Kind)> {
    if major < 8 {
        // Nothing is made for what is older than Ampere.
        return vec![];
    }
    // Since Hopper an architecture has features of its own alone, which code for `sm_90a` uses.
    let own = (major >= 9).then(|| format!("sm_{major}{minor}a"));
    let names: Vec<String> = own.into_iter().chain([format!("sm_{major}{minor}")]).collect();
    let cubin = names.iter().filter(|_| cubins).map(|n| (n.clone(), Kind::Cubin));
    let ptx = names.iter().map(|n| (n.clone(), Kind::Ptx));
    let common = (!names.iter().any(|n| n == COMMON)).then(|| (COMMON.to_owned(), Kind::Ptx));
    cubin.chain(ptx).chain(common).collect()
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Machine::Cpu(_) => f.write_str(&self.target()),
            Machine::Gpu { name, capability: (major, minor), .. } => {
                write!(f, "{name} (compute capability {major}.{minor})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(taken: Vec<(String, Kind)>) -> Vec<String> {
        taken.into_iter().map(|(target, kind)| format!("{target} {}", kind.name())).collect()
    }

    #[test]
    fn a_gpu_takes_its_own_cubin_then_its_own_ptx_then_that_of_sm_80() {
        assert_eq!(names(gpu((8, 0), true)), ["sm_80 cubin", "sm_80 ptx"]);
        assert_eq!(names(gpu((8, 6), true)), ["sm_86 cubin", "sm_86 ptx", "sm_80 ptx"]);
        assert_eq!(names(gpu((8, 9), true)), ["sm_89 cubin", "sm_89 ptx", "sm_80 ptx"]);
        assert_eq!(names(gpu((9, 0), true)), ["sm_90a cubin", "sm_90 cubin", "sm_90a ptx", "sm_90 ptx", "sm_80 ptx"]);
        assert_eq!(
            names(gpu((12, 1), true)),
            ["sm_121a cubin", "sm_121 cubin", "sm_121a ptx", "sm_121 ptx", "sm_80 ptx"]
        );
    }

    #[test]
    fn what_runs_no_machine_code_takes_ptx_alone() {
        assert_eq!(names(gpu((9, 0), false)), ["sm_90a ptx", "sm_90 ptx", "sm_80 ptx"]);
        assert_eq!(names(gpu((8, 0), false)), ["sm_80 ptx"]);
    }

    #[test]
    fn targets_are_machines() {
        for level in Level::ALL {
            let target = format!("cpu:{}", level.name());
            assert_eq!(Machine::of_target(&target).map(|m| m.target()), Ok(target));
        }
        let capability = |target: &str| match Machine::of_target(target) {
            Ok(Machine::Gpu { capability, .. }) => capability,
            other => panic!("{other:?}"),
        };
        assert_eq!((capability("sm_80"), capability("sm_90a"), capability("sm_120")), ((8, 0), (9, 0), (12, 0)));
        for wrong in ["", "cpu", "cpu:sse2", "sm_", "sm_x", "sm_99999", "sm_90aa", "x86-64-v3"] {
            let error = Machine::of_target(wrong).unwrap_err();
            assert!(error.contains("expected one of cpu:x86-64-v3, ") && error.ends_with(&format!("found `{wrong}`")));
        }
    }

    #[test]
    fn machine_code_is_made_for_gpus_of_the_targets_generation() {
        let gpu = |target: &str, capability, cubins| {
            Machine::Gpu { name: String::new(), target: target.into(), capability, cubins }.makes_cubins()
        };
        assert!(gpu("sm_80", (8, 0), true) && gpu("sm_80", (8, 9), true) && gpu("sm_90a", (9, 0), true));
        assert!(
            !gpu("sm_80", (12, 0), true) && !gpu("sm_80", (8, 0), false) && !Machine::Cpu(Level::V3).makes_cubins()
        );
    }

    #[test]
    fn an_older_gpu_takes_nothing() {
        assert_eq!(names(gpu((7, 5), true)), [""; 0]);
    }

    #[test]
    fn a_processor_takes_its_level_then_those_below_that_it_has() {
        let all = |_| true;
        assert_eq!(
            names(cpu(Level::V4Vnni, all)),
            ["cpu:x86-64-v4+vnni so", "cpu:x86-64-v4 so", "cpu:x86-64-v3+vnni so", "cpu:x86-64-v3 so"]
        );
        assert_eq!(names(cpu(Level::V3Vnni, all)), ["cpu:x86-64-v3+vnni so", "cpu:x86-64-v3 so"]);
        // AVX-512 VNNI does not imply AVX-VNNI.
        let server = |l| l != Level::V3Vnni;
        assert_eq!(
            names(cpu(Level::V4Vnni, server)),
            ["cpu:x86-64-v4+vnni so", "cpu:x86-64-v4 so", "cpu:x86-64-v3 so"]
        );
        // What TEGULA_CPU limits stays limited, whatever the processor has.
        assert_eq!(names(cpu(Level::V3, all)), ["cpu:x86-64-v3 so"]);
    }
}
