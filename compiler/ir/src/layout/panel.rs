//! The layout `panel16`: 16 columns side by side, so that one vector load brings one step of k for 16 outputs.
//!
//! A panel is 16 columns and all of K; panel p starts at byte `p · panel_bytes(K)`. Inside it *blocks* run along K (1 row of
//! a float format, 32 of most, 256 of the K-quants), and inside a block *groups* of 32 k. Per group, in words of 64 bytes
//! (4 bytes a column, lane c at bytes 4c .. 4c+4):
//!
//! ```text
//! byte codes (Q8_0)    word s, lane c, byte j:  k = 4s + j                             s = 0..8
//! nibble codes         word s, lane c, byte j:  low nibble k = 4s + j, high k = 16 + 4s + j    s = 0..4
//! 1 high bit (Q5)      1 word,  lane c, byte j, bit s:        bit 4 of k = 4s + j      s = 0..8
//! 2 high bits (Q6_K)   word h,  lane c, byte j, bits 2s, 2s+1: bits 4, 5 of k = 16h + 4s + j   h = 0..2, s = 0..4
//! scales               16 f16 (group), or 16 bytes (K-quants; Q6_K two rows of 16, one per half) with 16 f16 per block
//! minima               as the scales
//! ```
//!
//! Four consecutive k in a 32-bit lane are the operand of `vpmaddubsw` + `vpmaddwd`, of `vpdpbusd`, and of a GPU's dp4a. The
//! size is that of GGUF, but for the K-quants' 6-bit scales, which take a byte here.

use super::{GROUP, Raw};
use crate::elem::Quant;

/// Columns of a panel.
pub const COLUMNS: usize = 16;
/// Bytes of one row of words: 4 bytes for each column.
pub const WORD: usize = 4 * COLUMNS;

/// Where things lie in a panel of one format. Offsets are in bytes; those of a group count from the group's first byte,
/// those of a block from the block's. Scales and minima are rows of 16, one a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The format.
    pub quant: Quant,
    /// Rows of K in a block.
    pub block: usize,
    /// Bytes of a block of all 16 columns.
    pub block_bytes: usize,
    /// Bytes from a group to the next in a block (0 for float formats).
    pub group_bytes: usize,
    /// Words of codes, from the group's start: 8 of bytes or 4 of nibbles (0 for float formats).
    pub words: usize,
    /// High bits beside nibbles.
    pub high: Option<High>,
    /// f16 scales in the group.
    pub scale: Option<usize>,
    /// f16 minima in the group.
    pub min: Option<usize>,
    /// Byte scales in the group: unsigned, or (Q6_K) two rows, signed.
    pub sub: Option<usize>,
    /// Byte scales of the minima in the group.
    pub sub_min: Option<usize>,
    /// f16 scales in the block.
    pub block_scale: Option<usize>,
    /// f16 minima in the block.
    pub block_min: Option<usize>,
}

/// The upper bits of the codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct High {
    /// Offset in the group.
    pub at: usize,
    /// Bits per code: 1 or 2.
    pub bits: usize,
}

/// The panel format of `quant`.
pub const fn format(quant: Quant) -> Format {
    let mut f = Format {
        quant,
        block: quant.block(),
        block_bytes: 0,
        group_bytes: 0,
        words: 0,
        high: None,
        scale: None,
        min: None,
        sub: None,
        sub_min: None,
        block_scale: None,
        block_min: None,
    };
    if quant.is_float() {
        f.block_bytes = COLUMNS * quant.block_bytes();
        return f;
    }
    let (halves, bytes) = (2 * COLUMNS, COLUMNS); // a row of f16, a row of bytes
    f.words = if matches!(quant, Quant::Q8_0) { 8 } else { 4 };
    let mut at = f.words * WORD;
    let high_bits = match quant {
        Quant::Q5_0 | Quant::Q5_1 | Quant::Q5_K => 1,
        Quant::Q6_K => 2,
        _ => 0,
    };
    if high_bits > 0 {
        f.high = Some(High { at, bits: high_bits });
        at += high_bits * WORD;
    }
    if quant.block() == GROUP {
        f.scale = Some(at);
        at += halves;
        if quant.has_min() {
            f.min = Some(at);
            at += halves;
        }
        (f.group_bytes, f.block_bytes) = (at, at);
        return f;
    }
    f.sub = Some(at);
    at += if matches!(quant, Quant::Q6_K) { 2 * bytes } else { bytes };
    if quant.has_min() {
        f.sub_min = Some(at);
        at += bytes;
    }
    f.group_bytes = at;
    at *= quant.block() / GROUP;
    f.block_scale = Some(at);
    at += halves;
    if quant.has_min() {
        f.block_min = Some(at);
        at += halves;
    }
    f.block_bytes = at;
    f
}

impl Format {
    /// Bytes of a panel of `k` rows (whole blocks); `None` if that overflows.
    pub const fn panel_bytes(&self, k: usize) -> Option<usize> {
        (k / self.block).checked_mul(self.block_bytes)
    }

    /// First bytes of the block and of the group that hold group `group` of column `n`, in a matrix of `k` rows.
    fn start(&self, k: usize, group: usize, n: usize) -> (usize, usize) {
        let per_block = self.block / GROUP;
        let block = (n / COLUMNS * (k / self.block) + group / per_block) * self.block_bytes;
        (block, block + group % per_block * self.group_bytes)
    }

    /// Where the code of element `i` of a group lies for lane `lane`: offset in the group, shift, and bits there; then
    /// the same for its high bits, if the format has them.
    pub const fn code_at(&self, lane: usize, i: usize) -> (BitField, Option<BitField>) {
        let byte = 4 * lane + i % 4;
        let code = if self.words == 8 {
            BitField { at: i / 4 * WORD + byte, shift: 0, bits: 8 }
        } else {
            BitField { at: i % 16 / 4 * WORD + byte, shift: i / 16 * 4, bits: 4 }
        };
        let high = match self.high {
            Some(High { at, bits: 1 }) => Some(BitField { at: at + byte, shift: i / 4, bits: 1 }),
            Some(High { at, .. }) => Some(BitField { at: at + i / 16 * WORD + byte, shift: i % 16 / 4 * 2, bits: 2 }),
            None => None,
        };
        (code, high)
    }

    pub(super) fn read(&self, bytes: &[u8], k: usize, group: usize, n: usize) -> Raw {
        let (block, start) = self.start(k, group, n);
        let lane = n % COLUMNS;
        let half = |at: Option<usize>, from: usize| {
            at.map_or(0, |at| u16::from_le_bytes([bytes[from + at + 2 * lane], bytes[from + at + 2 * lane + 1]]))
        };
        let byte = |at: Option<usize>, row: usize| at.map_or(0, |at| bytes[start + at + row * COLUMNS + lane]);
        let codes = std::array::from_fn(|i| {
            let (code, high) = self.code_at(lane, i);
            code.get(bytes, start) | high.map_or(0, |h| h.get(bytes, start) << 4)
        });
        let (scale, min) = match self.scale {
            Some(_) => (half(self.scale, start), half(self.min, start)),
            None => (half(self.block_scale, block), half(self.block_min, block)),
        };
        let second = usize::from(self.quant == Quant::Q6_K);
        Raw { codes, scale, min, sub: [byte(self.sub, 0), byte(self.sub, second)], sub_min: byte(self.sub_min, 0) }
    }

    pub(super) fn write(&self, bytes: &mut [u8], k: usize, group: usize, n: usize, raw: &Raw) {
        let (block, start) = self.start(k, group, n);
        let lane = n % COLUMNS;
        for (i, c) in raw.codes.into_iter().enumerate() {
            let (code, high) = self.code_at(lane, i);
            code.set(bytes, start, c);
            if let Some(h) = high {
                h.set(bytes, start, c >> 4);
            }
        }
        for (at, from, bits) in [
            (self.scale, start, raw.scale),
            (self.min, start, raw.min),
            (self.block_scale, block, raw.scale),
            (self.block_min, block, raw.min),
        ] {
            if let Some(at) = at {
                bytes[from + at + 2 * lane..][..2].copy_from_slice(&bits.to_le_bytes());
            }
        }
        if let Some(at) = self.sub {
            bytes[start + at + lane] = raw.sub[0];
            if self.quant == Quant::Q6_K {
                bytes[start + at + COLUMNS + lane] = raw.sub[1];
            }
        }
        if let Some(at) = self.sub_min {
            bytes[start + at + lane] = raw.sub_min;
        }
    }
}

/// Some bits of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitField {
    /// The byte, from the group's start.
    pub at: usize,
    /// The lowest bit.
    pub shift: usize,
    /// How many.
    pub bits: usize,
}

impl BitField {
    fn mask(self) -> u8 {
        (0xff >> (8 - self.bits)) as u8
    }
    fn get(self, bytes: &[u8], from: usize) -> u8 {
        bytes[from + self.at] >> self.shift & self.mask()
    }
    fn set(self, bytes: &mut [u8], from: usize, value: u8) {
        let byte = &mut bytes[from + self.at];
        *byte = *byte & !(self.mask() << self.shift) | (value & self.mask()) << self.shift;
    }
}
