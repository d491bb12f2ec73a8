//! The types an instruction or a variable can name (`.u32`, `.f16x2`, ...).

/// A PTX type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ty {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F32x2,
    F64,
    Tf32,
    E4m3,
    E5m2,
    E4m3x2,
    E5m2x2,
    E2m1x2,
    E2m3x2,
    E3m2x2,
    Ue8m0x2,
    E4m3x4,
    E5m2x4,
    U16x2,
    S16x2,
    S4,
    U4,
    B1,
    Pred,
}

/// Every type beside its PTX name.
const NAMES: &[(&str, Ty)] = &[
    ("b8", Ty::B8),
    ("b16", Ty::B16),
    ("b32", Ty::B32),
    ("b64", Ty::B64),
    ("b128", Ty::B128),
    ("u8", Ty::U8),
    ("u16", Ty::U16),
    ("u32", Ty::U32),
    ("u64", Ty::U64),
    ("s8", Ty::S8),
    ("s16", Ty::S16),
    ("s32", Ty::S32),
    ("s64", Ty::S64),
    ("f16", Ty::F16),
    ("f16x2", Ty::F16x2),
    ("bf16", Ty::Bf16),
    ("bf16x2", Ty::Bf16x2),
    ("f32", Ty::F32),
    ("f32x2", Ty::F32x2),
    ("f64", Ty::F64),
    ("tf32", Ty::Tf32),
    ("e4m3", Ty::E4m3),
    ("e5m2", Ty::E5m2),
    ("e4m3x2", Ty::E4m3x2),
    ("e5m2x2", Ty::E5m2x2),
    ("e2m1x2", Ty::E2m1x2),
    ("e2m3x2", Ty::E2m3x2),
    ("e3m2x2", Ty::E3m2x2),
    ("ue8m0x2", Ty::Ue8m0x2),
    ("e4m3x4", Ty::E4m3x4),
    ("e5m2x4", Ty::E5m2x4),
    ("u16x2", Ty::U16x2),
    ("s16x2", Ty::S16x2),
    ("s4", Ty::S4),
    ("u4", Ty::U4),
    ("b1", Ty::B1),
    ("pred", Ty::Pred),
];

impl Ty {
    /// The type called `name` (without the dot).
    pub fn parse(name: &str) -> Option<Ty> {
        NAMES.iter().find(|(n, _)| *n == name).map(|(_, ty)| *ty)
    }

    /// Its PTX name, without the dot.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, ty)| *ty == self).map_or("?", |(n, _)| n)
    }

    /// Bits of one value.
    pub fn bits(self) -> u32 {
        use Ty::*;
        match self {
            Pred | B1 => 1,
            S4 | U4 => 4,
            B8 | U8 | S8 | E4m3 | E5m2 | E2m1x2 => 8,
            B16 | U16 | S16 | F16 | Bf16 | E4m3x2 | E5m2x2 | E2m3x2 | E3m2x2 | Ue8m0x2 => 16,
            B32 | U32 | S32 | F32 | Tf32 | F16x2 | Bf16x2 | U16x2 | S16x2 | E4m3x4 | E5m2x4 => 32,
            B64 | U64 | S64 | F64 | F32x2 => 64,
            B128 => 128,
        }
    }

    /// Bytes in memory; a predicate or a 4-bit value has none of its own and counts as one byte.
    pub fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// Whether it is a signed integer.
    pub fn signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }

    /// Whether it is an integer with a sign rule (`.u*`, `.s*`).
    pub fn integer(self) -> bool {
        self.signed() || matches!(self, Ty::U8 | Ty::U16 | Ty::U32 | Ty::U64)
    }
}

impl std::fmt::Display for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ".{}", self.name())
    }
}
