//! The GGUF block formats: which bits of a block belong to a group of 32.

use super::{GROUP, Raw};
use crate::elem::Quant;

/// Group `j` of a block.
pub(super) fn read(quant: Quant, b: &[u8], j: usize) -> Raw {
    let half = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
    match quant {
        Quant::Q4_0 => Raw { scale: half(0), codes: nibbles(&b[2..18]), ..Raw::default() },
        Quant::Q4_1 => Raw { scale: half(0), min: half(2), codes: nibbles(&b[4..20]), ..Raw::default() },
        Quant::Q5_0 => Raw { scale: half(0), codes: fifth(nibbles(&b[6..22]), &b[2..6]), ..Raw::default() },
        Quant::Q5_1 => {
            Raw { scale: half(0), min: half(2), codes: fifth(nibbles(&b[8..24]), &b[4..8]), ..Raw::default() }
        }
        Quant::Q8_0 => Raw { scale: half(0), codes: std::array::from_fn(|i| b[2 + i]), ..Raw::default() },
        Quant::Q4_K | Quant::Q5_K => {
            let (sub, sub_min) = six_bit_scales(&b[4..16], j);
            // 32 bytes hold two groups: the even one in the low nibbles. Q5_K: bit j of byte i is the fifth bit of
            // element i of group j.
            let (fifths, codes) = if quant == Quant::Q5_K { (Some(&b[16..48]), &b[48..]) } else { (None, &b[16..]) };
            let codes = std::array::from_fn(|i| {
                let low = codes[j / 2 * 32 + i] >> (j % 2 * 4) & 15;
                low | fifths.map_or(0, |f| (f[i] >> j & 1) << 4)
            });
            Raw { scale: half(0), min: half(2), sub: [sub; 2], sub_min, codes }
        }
        Quant::Q6_K => {
            // Two halves of 128. In a half, group g of 4 has nibble g / 2 of bytes 32 (g % 2) + i and bit pair g of byte i.
            let (h, g) = (j / 4, j % 4);
            let (low, high) = (&b[h * 64 + g % 2 * 32..][..32], &b[128 + h * 32..][..32]);
            let codes = std::array::from_fn(|i| (low[i] >> (g / 2 * 4) & 15) | (high[i] >> (g * 2) & 3) << 4);
            Raw { scale: half(208), sub: [b[192 + 2 * j], b[193 + 2 * j]], codes, ..Raw::default() }
        }
        Quant::F32 | Quant::F16 | Quant::BF16 => unreachable!("the caller refuses float formats"),
    }
}

/// 16 bytes: elements 0..16 in the low nibbles, 16..32 in the high ones.
fn nibbles(b: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| b[i % 16] >> (i / 16 * 4) & 15)
}

/// Adds the fifth bits: bit i of a little-endian u32 belongs to element i.
fn fifth(codes: [u8; GROUP], b: &[u8]) -> [u8; GROUP] {
    std::array::from_fn(|i| codes[i] | (b[i / 8] >> (i % 8) & 1) << 4)
}

/// Scale and minimum of group `j` of 8, of 6 bits each in 12 bytes: for j < 4 the low 6 bits of bytes j and j + 4; for the
/// others a nibble of byte j + 4 under the top 2 bits of bytes j − 4 and j.
fn six_bit_scales(b: &[u8], j: usize) -> (u8, u8) {
    if j < 4 {
        (b[j] & 63, b[j + 4] & 63)
    } else {
        (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4)
    }
}
