//! Which architecture and which version of PTX an instruction needs: one table, by the notes of the PTX manual.
//!
//! A module states `.version` and `.target`; an instruction that is newer than either is an error at its line, as it is
//! for ptxas, whether or not the emulated device could run it.

use crate::{
    error::Error,
    text::ast::{Inst, Module},
};

/// Architectures that have something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// This one and all later ones.
    From(u32),
    /// This one and later ones, with the features of one architecture or family (`sm_100a`, `sm_100f`).
    Special(u32),
    /// Exactly this one.
    Only(&'static str),
    /// Every one, but on this one the version is demanded: what older architectures learnt late.
    On(u32),
}

/// The least architecture and `.version` (86 is 8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Architecture.
    pub arch: Arch,
    /// Ten times the version.
    pub version: u32,
}

impl Need {
    /// From `sm_{arch}` on, from `.version` `version / 10` on.
    pub const fn new(arch: u32, version: u32) -> Need {
        Need { arch: Arch::From(arch), version }
    }

    /// As [`Need::new`], only with an `a` or `f` behind the number.
    pub const fn special(arch: u32, version: u32) -> Need {
        Need { arch: Arch::Special(arch), version }
    }

    /// For one architecture alone.
    pub const fn only(arch: &'static str, version: u32) -> Need {
        Need { arch: Arch::Only(arch), version }
    }

    /// The least `.target`.
    pub fn target(&self) -> String {
        match self.arch {
            Arch::From(n) => format!("sm_{n}"),
            Arch::Special(n) => format!("sm_{n}a"),
            Arch::Only(name) => name.to_string(),
            Arch::On(n) => format!("sm_{n}"),
        }
    }
}

/// An architecture's number, and whether it has the features of one (`a`) or of a family (`f`).
pub fn parse(name: &str) -> Option<(u32, bool)> {
    let number = name.strip_prefix("sm_")?;
    let plain = number.trim_end_matches(['a', 'f']);
    Some((plain.parse().ok()?, plain.len() != number.len()))
}

/// A row: opcode with the qualifiers that follow it, words of which each must stand among the rest (`a|b`: one of them;
/// `a*`: one that starts so), and what that needs. Of an instruction that several rows describe, all must be met.
type Row = (&'static str, &'static str, Need);

const SM70: Need = Need::new(70, 60);
const SM75: Need = Need::new(75, 65);
const SM80: Need = Need::new(80, 70);
const SM86: Need = Need::new(86, 72);
const SM90: Need = Need::new(90, 80);
/// sm_90, with the version in which it came.
const SM90_78: Need = Need::new(90, 78);
const SM100: Need = Need::new(100, 86);
const SM100A: Need = Need::special(100, 86);

/// The table.
pub const TABLE: &[Row] = &[
    // Warps.
    ("shfl.sync", "", Need::new(30, 60)),
    ("vote.sync", "", Need::new(30, 60)),
    ("match", "", SM70),
    ("activemask", "", Need::new(30, 62)),
    ("redux.sync", "", SM80),
    ("redux.sync", "f32", SM100A),
    ("elect.sync", "", SM90),
    ("bar.warp.sync", "", Need::new(30, 60)),
    ("nanosleep", "", Need::new(70, 63)),
    // Barriers, clusters, order.
    ("barrier.cluster", "", SM90_78),
    ("barrier.cluster", "relaxed", SM90),
    ("mapa", "", SM90_78),
    ("getctarank", "", SM90_78),
    ("isspacep", "shared::cluster", SM90_78),
    ("griddepcontrol", "", SM90_78),
    ("fence", "", SM70),
    ("fence", "cluster", SM90_78),
    ("fence.acquire", "", Need::new(90, 86)),
    ("fence.release", "", Need::new(90, 86)),
    ("fence.proxy", "alias", Need::new(70, 75)),
    ("fence.proxy", "async", SM90),
    ("fence.proxy", "async::generic", Need::new(90, 86)),
    ("fence.proxy.tensormap::generic", "", Need::new(90, 83)),
    ("fence.mbarrier_init", "", SM90),
    ("setmaxnreg", "", Need::special(90, 80)),
    // mbarriers.
    ("mbarrier", "", SM80),
    ("mbarrier.test_wait", "parity", Need::new(80, 71)),
    ("mbarrier.try_wait", "", SM90_78),
    ("mbarrier.expect_tx", "", SM90),
    ("mbarrier.complete_tx", "", SM90),
    ("mbarrier.arrive", "expect_tx", SM90),
    ("mbarrier.arrive_drop", "expect_tx", SM90),
    ("mbarrier", "cluster|shared::cluster", SM90),
    // Copies.
    ("cp.async.ca", "", SM80),
    ("cp.async.cg", "", SM80),
    ("cp.async.commit_group", "", SM80),
    ("cp.async.wait_group", "", SM80),
    ("cp.async.wait_all", "", SM80),
    ("cp.async.mbarrier", "", SM80),
    ("cp.async.bulk", "", SM90),
    ("cp.reduce", "", SM90),
    ("cp.async.bulk.shared::cta", "", Need::new(90, 86)),
    ("cp.async.bulk.tensor", "tile::gather4|im2col::w|im2col::w::128", SM100),
    ("cp.async.bulk.tensor", "shared::cluster tile::gather4|im2col::w|im2col::w::128", SM100A),
    ("cp.async.bulk.tensor", "tile::scatter4|cta_group::1|cta_group::2", SM100A),
    ("cp.async.bulk.prefetch.tensor", "tile::gather4|im2col::w|im2col::w::128", SM100A),
    ("st.async", "", Need::new(90, 81)),
    ("red.async", "", Need::new(90, 81)),
    // Matrices.
    ("ldmatrix", "", SM75),
    ("ldmatrix", "m16n16|m8n16", SM100A),
    ("stmatrix", "", SM90_78),
    ("stmatrix", "b8", SM100A),
    ("mma", "", SM75),
    ("mma", "bf16|tf32|f64|m16n8k16|m16n8k32|m16n8k64|m16n8k128", SM80),
    ("mma", "e4m3|e5m2", Need::new(89, 84)),
    ("wgmma", "", Need::only("sm_90a", 80)),
    // Memory.
    ("ld", "L1::evict*|L1::no_allocate", Need::new(70, 74)),
    ("st", "L1::evict*|L1::no_allocate", Need::new(70, 74)),
    ("ld", "L2::64B|L2::128B", Need::new(75, 74)),
    ("ld", "L2::256B|L2::cache_hint", Need::new(80, 74)),
    ("st", "L2::cache_hint", Need::new(80, 74)),
    ("cp.async", "L2::cache_hint|L2::64B|L2::128B|L2::256B", Need::new(80, 74)),
    ("createpolicy", "", Need::new(80, 74)),
    ("ld", "v8", Need::new(100, 88)),
    ("st", "v8", Need::new(100, 88)),
    ("ld", "shared::cluster", SM90_78),
    ("st", "shared::cluster", SM90_78),
    ("ld", "b128", Need::new(70, 83)),
    ("st", "b128", Need::new(70, 83)),
    ("prefetch", "tensormap", SM90),
    ("atom", "bf16|bf16x2", SM90_78),
    ("red", "bf16|bf16x2", SM90_78),
    ("atom", "v2|v4|v8", Need::new(90, 81)),
    ("red", "v2|v4|v8", Need::new(90, 81)),
    ("atom", "b128", Need::new(90, 83)),
    ("atom", "cluster|shared::cluster", SM90_78),
    ("red", "cluster|shared::cluster", SM90_78),
    // Arithmetic.
    ("add", "bf16|bf16x2", SM90_78),
    ("sub", "bf16|bf16x2", SM90_78),
    ("mul", "bf16|bf16x2", SM90_78),
    ("add", "u16x2|s16x2", SM90),
    ("min", "u16x2|s16x2|relu", SM90),
    ("max", "u16x2|s16x2|relu", SM90),
    ("add", "f32x2", SM100),
    ("sub", "f32x2", SM100),
    ("mul", "f32x2", SM100),
    ("fma", "f32x2", SM100),
    ("fma", "bf16|bf16x2|relu", SM80),
    ("min", "f16|f16x2|bf16|bf16x2", SM80),
    ("max", "f16|f16x2|bf16|bf16x2", SM80),
    ("min", "NaN", SM80),
    ("max", "NaN", SM80),
    ("min", "abs", SM86),
    ("max", "abs", SM86),
    ("neg", "bf16|bf16x2", SM80),
    ("abs", "bf16|bf16x2", SM80),
    ("tanh", "", Need::new(75, 70)),
    ("tanh", "bf16|bf16x2", SM90_78),
    ("ex2", "f16|f16x2", Need::new(75, 70)),
    ("ex2", "bf16|bf16x2", SM90_78),
    ("bmsk", "", Need::new(70, 76)),
    ("szext", "", Need::new(70, 76)),
    // Conversions. Only f32 goes to bf16 before sm_90, and only bf16 to f32 back.
    ("cvt", "bf16|tf32|bf16x2", SM80),
    ("cvt.rn.f16x2.f32", "", SM80),
    ("cvt.rz.f16x2.f32", "", SM80),
    ("cvt", "f32.bf16", Need::new(80, 71)),
    ("cvt", "rn tf32", SM90_78),
    ("cvt", "rz tf32", SM90_78),
    ("cvt", "bf16 u8|s8|u16|s16|u32|s32|u64|s64|f16|f64", SM90_78),
    ("cvt", "e4m3x2|e5m2x2", Need::new(89, 78)),
    ("cvt", "e4m3x2|e5m2x2", Need { arch: Arch::On(89), version: 81 }),
    ("cvt", "rs", Need::special(100, 87)),
    ("cvt", "e2m1x2|e2m3x2|e3m2x2|ue8m0x2", SM100A),
    ("cvt", "e4m3x4|e5m2x4|e2m1x4|e2m3x4|e3m2x4", Need::special(100, 87)),
];

/// Special registers that came late.
const REGISTERS: &[(&str, Need)] = &[
    ("%clusterid", SM90_78),
    ("%nclusterid", SM90_78),
    ("%cluster_", SM90_78),
    ("%is_explicit_cluster", SM90_78),
    ("%aggr_smem_size", Need::new(90, 81)),
];

/// The `.version` in which each architecture came.
const TARGETS: &[(u32, bool, u32)] = &[
    (70, false, 60),
    (75, false, 63),
    (80, false, 70),
    (86, false, 71),
    (87, false, 74),
    (89, false, 78),
    (90, false, 78),
    (90, true, 80),
    (100, false, 86),
    (100, true, 86),
    (101, false, 86),
    (103, false, 88),
    (110, false, 90),
    (120, false, 87),
    (121, false, 88),
];

/// What stands at the head of a module.
#[derive(Clone, Debug)]
pub struct Head {
    name: String,
    number: u32,
    special: bool,
    version: u32,
}

impl Head {
    /// Of a module; an architecture newer than its `.version` is an error.
    pub fn of(module: &Module) -> Result<Head, Error> {
        let name = module.target.first().cloned().unwrap_or_default();
        let Some((number, special)) = parse(&name) else {
            return Err(Error::new(1, format!("`{name}` is no architecture such as sm_80 or sm_90a")));
        };
        let version = 10 * module.version.0 + module.version.1;
        let since = TARGETS.iter().filter(|(n, s, _)| *n == number && (!s || special)).map(|t| t.2).max();
        if let Some(since) = since
            && version < since
        {
            let (asked, found) = (show(since), show(version));
            return Err(Error::new(1, format!("`.target {name}` needs .version {asked}, the module's is {found}")));
        }
        Ok(Head { name, number, special, version })
    }

    fn has(&self, arch: Arch) -> bool {
        match arch {
            Arch::From(n) => self.number >= n,
            Arch::Special(n) => self.number >= n && self.special,
            Arch::Only(name) => self.name == name,
            Arch::On(_) => true,
        }
    }

    /// Whether the module may hold an instruction.
    pub fn check(&self, inst: &Inst) -> Result<(), Error> {
        for need in needs(inst) {
            self.meets(need, inst.line, &inst.name())?;
        }
        Ok(())
    }

    /// Whether the module may name a special register.
    pub fn check_register(&self, name: &str, line: u32) -> Result<(), Error> {
        match REGISTERS.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            Some((_, need)) => self.meets(*need, line, name),
            None => Ok(()),
        }
    }

    fn meets(&self, need: Need, line: u32, what: &str) -> Result<(), Error> {
        if !self.has(need.arch) {
            let only = match need.arch {
                Arch::From(_) => "or later",
                Arch::Special(_) => "or a later one with its own features",
                Arch::Only(_) | Arch::On(_) => "and no other",
            };
            let message = format!("`{what}` needs .target {} {only}, the module's is {}", need.target(), self.name);
            return Err(Error::new(line, message));
        }
        if self.version < need.version && !matches!(need.arch, Arch::On(n) if n != self.number) {
            let (asked, found) = (show(need.version), show(self.version));
            return Err(Error::new(line, format!("`{what}` needs .version {asked}, the module's is {found}")));
        }
        Ok(())
    }
}

fn show(version: u32) -> String {
    format!("{}.{}", version / 10, version % 10)
}

/// What every instruction of an opcode (with its fixed qualifiers, as in the table of forms) needs.
pub fn whole(opcode: &str) -> Option<Need> {
    let parts: Vec<&str> = opcode.split('.').collect();
    let prefix = |row: &&Row| row.1.is_empty() && row.0.split('.').enumerate().all(|(i, p)| parts.get(i) == Some(&p));
    TABLE.iter().filter(prefix).map(|row| row.2).max_by_key(|need| need.version)
}

/// What an instruction needs.
pub fn needs(inst: &Inst) -> impl Iterator<Item = Need> {
    TABLE.iter().filter(move |(opcode, words, _)| describes(opcode, words, inst)).map(|row| row.2)
}

fn describes(opcode: &str, words: &str, inst: &Inst) -> bool {
    let mut parts = opcode.split('.');
    if parts.next() != Some(inst.opcode.as_str()) {
        return false;
    }
    let fixed = parts.clone().count();
    if !parts.zip(&inst.quals).all(|(p, q)| p == q) || inst.quals.len() < fixed {
        return false;
    }
    let rest = &inst.quals[fixed..];
    words.split_whitespace().all(|choice| {
        choice.split('|').any(|word| match (word.strip_suffix('*'), word.split_once('.')) {
            (Some(prefix), _) => rest.iter().any(|q| q.starts_with(prefix)),
            // Two that follow each other.
            (None, Some((a, b))) => rest.windows(2).any(|w| w[0] == a && w[1] == b),
            (None, None) => rest.iter().any(|q| q == word),
        })
    })
}
