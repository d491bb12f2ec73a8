//! What GGUF's blocks mean, in float64: written from ggml's description of the formats, for this comparison alone.

use half::{bf16, f16};
use tegula::ir::Quant;

/// A weight as a multiple of a scale and what is added to it: their sum is its value.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    pub scaled: f64,
    pub added: f64,
}

impl Weight {
    pub fn value(self) -> f64 {
        self.scaled + self.added
    }
    /// Of which roundings are relative parts.
    pub fn size(self) -> f64 {
        self.scaled.abs() + self.added.abs()
    }
}

/// Weight `k` of a row of blocks.
pub fn weight(quant: Quant, row: &[u8], k: usize) -> Weight {
    let block = quant.block();
    let b = &row[k / block * quant.block_bytes()..][..quant.block_bytes()];
    let i = k % block;
    let half = |at: usize| f16::from_le_bytes([b[at], b[at + 1]]).to_f64();
    // Two codes a byte: the block's (or part's) first half in the low nibbles.
    let nibble =
        |at: usize, i: usize, half: usize| i32::from(if i < half { b[at + i] & 15 } else { b[at + i - half] >> 4 });
    let bit = |at: usize, i: usize| i32::from(b[at + i / 8] >> (i % 8) & 1);
    let of = |scale: f64, code: i32, added: f64| Weight { scaled: scale * f64::from(code), added };
    match quant {
        Quant::F32 => of(f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])), 1, 0.0),
        Quant::F16 => of(half(0), 1, 0.0),
        Quant::BF16 => of(bf16::from_le_bytes([b[0], b[1]]).to_f64(), 1, 0.0),
        Quant::Q4_0 => of(half(0), nibble(2, i, 16) - 8, 0.0),
        Quant::Q4_1 => of(half(0), nibble(4, i, 16), half(2)),
        Quant::Q5_0 => of(half(0), nibble(6, i, 16) + 16 * bit(2, i) - 16, 0.0),
        Quant::Q5_1 => of(half(0), nibble(8, i, 16) + 16 * bit(4, i), half(2)),
        Quant::Q8_0 => of(half(0), i32::from(b[2 + i] as i8), 0.0),
        Quant::Q4_K | Quant::Q5_K => {
            let group = i / 32;
            // Six bits each of scale and minimum: of groups 4 to 7 the upper two are in the first bytes' top bits.
            let s = |j: usize| b[4 + j];
            let (scale, min) = match group {
                0..4 => (s(group) & 63, s(group + 4) & 63),
                _ => (s(group + 4) & 15 | s(group - 4) >> 6 << 4, s(group + 4) >> 4 | s(group) >> 6 << 4),
            };
            let codes = if quant == Quant::Q4_K { 16 } else { 48 };
            let low = nibble(codes + 32 * (i / 64), i % 64, 32);
            let high = if quant == Quant::Q5_K { i32::from(b[16 + i % 32] >> group & 1) } else { 0 };
            of(half(0) * f64::from(scale), low + 16 * high, -half(2) * f64::from(min))
        }
        Quant::Q6_K => {
            // Halves of 128 weights: four runs of 32 share 64 bytes of low nibbles and 32 of upper pairs of bits.
            let (part, run, l) = (i / 128, i % 128 / 32, i % 32);
            let low = b[64 * part + 32 * (run % 2) + l];
            let low = if run < 2 { low & 15 } else { low >> 4 };
            let high = b[128 + 32 * part + l] >> (2 * run) & 3;
            let scale = b[192 + 8 * part + 2 * run + l / 16] as i8;
            of(half(208) * f64::from(scale), i32::from(low) + 16 * i32::from(high) - 32, 0.0)
        }
    }
}
