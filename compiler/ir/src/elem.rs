//! Element types of tiles: what one element is, how many bits it takes, which arithmetic it has.

use std::fmt;

macro_rules! elems {
    ($($variant:ident $name:literal $bits:literal $class:ident $doc:literal;)*) => {
        /// The type of one element of a tile, a view or a packed operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Elem { $(#[doc = $doc] $variant,)* }

        impl Elem {
            /// Every element type, in declaration order.
            pub const ALL: &'static [Elem] = &[$(Elem::$variant,)*];

            /// The name in text: `f32`, `i8`, `bool`, …
            pub const fn name(self) -> &'static str { match self { $(Elem::$variant => $name,)* } }

            /// Width in bits of the value. `bool` is 1 here but takes a byte in memory: see [`Elem::bytes`].
            pub const fn bits(self) -> u32 { match self { $(Elem::$variant => $bits,)* } }

            /// The arithmetic class.
            pub const fn class(self) -> Class { match self { $(Elem::$variant => Class::$class,)* } }

            /// The element type of that name.
            pub fn from_name(name: &str) -> Option<Elem> { match name { $($name => Some(Elem::$variant),)* _ => None } }
        }
    };
}

elems! {
    F64 "f64" 64 Float "IEEE binary64.";
    F32 "f32" 32 Float "IEEE binary32.";
    F16 "f16" 16 Float "IEEE binary16.";
    BF16 "bf16" 16 Float "bfloat16: the upper half of an f32.";
    F8E4M3 "f8e4m3" 8 Float "OCP 8-bit float, 4 exponent bits, no infinity, largest 448.";
    F8E5M2 "f8e5m2" 8 Float "OCP 8-bit float, 5 exponent bits, largest 57344.";
    I8 "i8" 8 Signed "Signed 8-bit integer.";
    I16 "i16" 16 Signed "Signed 16-bit integer.";
    I32 "i32" 32 Signed "Signed 32-bit integer.";
    I64 "i64" 64 Signed "Signed 64-bit integer.";
    U8 "u8" 8 Unsigned "Unsigned 8-bit integer.";
    U16 "u16" 16 Unsigned "Unsigned 16-bit integer.";
    U32 "u32" 32 Unsigned "Unsigned 32-bit integer.";
    U64 "u64" 64 Unsigned "Unsigned 64-bit integer.";
    Bool "bool" 1 Bool "Truth value, stored as the byte 0 or 1; any non-zero byte reads as true.";
}

/// What arithmetic an element type has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Floating point.
    Float,
    /// Two's complement integers.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// `bool`.
    Bool,
}

impl Elem {
    /// Bytes that one element takes in memory.
    pub const fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }
    /// Any floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self.class(), Class::Float)
    }
    /// A signed or unsigned integer (not `bool`).
    pub const fn is_int(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Unsigned)
    }
    /// A signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self.class(), Class::Signed)
    }
    /// A float or an integer.
    pub const fn is_num(self) -> bool {
        !matches!(self.class(), Class::Bool)
    }
    /// The type in which sums of this type are accumulated: f32 for the floats below it, i32 for `bool` (a sum counts),
    /// the type itself otherwise.
    pub const fn accumulator(self) -> Elem {
        match self {
            Elem::F16 | Elem::BF16 | Elem::F8E4M3 | Elem::F8E5M2 => Elem::F32,
            Elem::Bool => Elem::I32,
            e => e,
        }
    }
}

impl fmt::Display for Elem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Formats of packed (quantised or pre-arranged) weights. The *meaning* of a block is that of the GGUF type of the same
/// name (source: ggml's `ggml-common.h` block structures); the *layout* in memory is the target's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(non_camel_case_types, missing_docs)]
pub enum Quant {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

impl Quant {
    /// Every format.
    pub const ALL: &'static [Quant] = {
        use Quant::*;
        &[F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K]
    };
    /// The name in text, in GGUF's lower-case spelling: `q4_1`, `q6_k`, `f16`, …
    pub const fn name(self) -> &'static str {
        match self {
            Quant::F32 => "f32",
            Quant::F16 => "f16",
            Quant::BF16 => "bf16",
            Quant::Q4_0 => "q4_0",
            Quant::Q4_1 => "q4_1",
            Quant::Q5_0 => "q5_0",
            Quant::Q5_1 => "q5_1",
            Quant::Q8_0 => "q8_0",
            Quant::Q4_K => "q4_k",
            Quant::Q5_K => "q5_k",
            Quant::Q6_K => "q6_k",
        }
    }
    /// The format of that name.
    pub fn from_name(name: &str) -> Option<Quant> {
        Quant::ALL.iter().copied().find(|q| q.name() == name)
    }
    /// Elements of one GGUF block.
    pub const fn block(self) -> usize {
        match self {
            Quant::F32 | Quant::F16 | Quant::BF16 => 1,
            Quant::Q4_K | Quant::Q5_K | Quant::Q6_K => 256,
            _ => 32,
        }
    }
    /// Bytes of one GGUF block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Quant::F32 => 4,
            Quant::F16 | Quant::BF16 => 2,
            Quant::Q4_0 => 18,
            Quant::Q4_1 => 20,
            Quant::Q5_0 => 22,
            Quant::Q5_1 => 24,
            Quant::Q8_0 => 34,
            Quant::Q4_K => 144,
            Quant::Q5_K => 176,
            Quant::Q6_K => 210,
        }
    }
    /// Plain floats: used by `dot`, not by `dot_grouped`.
    pub const fn is_float(self) -> bool {
        matches!(self, Quant::F32 | Quant::F16 | Quant::BF16)
    }
    /// Formats whose value is `scale * code + minimum`, so that `dot_grouped` needs the activations' group sums.
    pub const fn has_min(self) -> bool {
        matches!(self, Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K)
    }
}

impl fmt::Display for Quant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
