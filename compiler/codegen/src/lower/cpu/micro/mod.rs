//! Matrix products on the CPU: register blocks, and the loops and staging around them.
//!
//! A tile is bigger than the register file, so a product of tiles is loops over blocks of accumulators that do fit. Lanes are
//! outputs (16-column panels), one accumulator an output, so every output is one chain of fma in ascending k whatever the
//! blocking: results do not depend on the number of rows, the tile or the instruction set.
//!
//! | file | what |
//! |---|---|
//! | [`code`] | what the builder lacks: strides, partial vectors |
//! | [`gemm`] | C += A·B over operands that lie well in memory: the register blocks |
//! | [`stage`] | copying operands to where they lie well |
//! | [`dot`] | the tile-level `dot`: which operands to stage, in pieces of K |
//! | [`unpack`] | panels of packed weights to codes and scales in registers |
//! | [`integer`] | the exact integer product of a group |
//! | [`activations`] | what `dot_grouped` prepares of the activations, once for all columns |
//! | [`grouped`] | the tile-level `dot_grouped`, straight from packed memory |
//! | [`dequant`] | packed weights as f32: `dequant`, `packed_gather` |
//!
//! What a caller needs: [`dot::Dot`], [`grouped::Grouped`] and [`dequant::Dequant`] describe an op (shapes and types, all known
//! when the kernel is compiled), say how much scratch memory they want, and emit code for given addresses. What they reach and
//! why is in docs/perf/cpu-dot.md.

pub mod activations;
pub mod code;
pub mod dequant;
pub mod dot;
pub mod gemm;
pub mod grouped;
pub mod integer;
pub mod stage;
pub mod unpack;

pub use code::{Code, Stride};

use crate::emit::CpuTarget;

/// The vector instructions that code may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa {
    /// Bits of a vector register: 256 (AVX2, FMA, F16C) or 512 (AVX-512 F, BW, DQ, VL).
    pub bits: usize,
    /// `vpdpbusd` on such registers.
    pub vnni: bool,
}

impl Isa {
    /// What `target` has; `None` below x86-64-v3.
    pub fn of(target: &CpuTarget) -> Option<Isa> {
        match target.level() {
            "x86-64-v3" => Some(Isa { bits: 256, vnni: target.has("avxvnni") }),
            "x86-64-v4" => Some(Isa { bits: 512, vnni: target.has("avx512vnni") }),
            _ => None,
        }
    }
    /// Lanes of a register of elements of `bytes` bytes.
    pub fn lanes(self, bytes: usize) -> usize {
        self.bits / 8 / bytes
    }
    /// Vector registers.
    pub fn registers(self) -> usize {
        if self.bits == 512 { 32 } else { 16 }
    }
}
