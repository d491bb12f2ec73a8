//! One group of a panel in registers: code words, scales and minima, by [`panel::Format`].
//!
//! A *word* is one register of bytes: four consecutive k for each of its 32-bit lanes (columns). A group of 32 k has eight of
//! them; word s covers k = 4s .. 4s+4 of the group.

use super::Code;
use crate::lower::cpu::build::V;
use tegula_ir::{
    Quant,
    layout::{
        GROUP,
        panel::{self, Format, High, WORD},
    },
};

/// The lanes `first ..` (one register of them) of one group of one panel.
#[derive(Clone, Copy)]
pub struct Group<'c> {
    /// Where things lie.
    pub format: Format,
    /// First byte of the block.
    pub block: V<'c>,
    /// First byte of the group.
    pub group: V<'c>,
    /// The first column.
    pub first: usize,
}

impl<'c> Group<'c> {
    /// Step `s` of 4 through the group: two words with their numbers. Codes are unsigned as stored (Q8_0's: two's
    /// complement).
    pub fn words(&self, c: &Code<'_, 'c>, s: usize) -> [(usize, V<'c>); 2] {
        let at =
            |offset: usize| c.read(c.offset_c(self.group, (offset + 4 * self.first) as i64), c.i8(), c.isa.lanes(1));
        if self.format.words == 8 {
            return [2 * s, 2 * s + 1].map(|s| (s, at(s * WORD)));
        }
        let nibbles = at(s * WORD);
        let low = [(s, field(c, nibbles, 0, 0x0f)), (s + 4, field(c, nibbles, -4, 0x0f))];
        let Some(High { at: high, bits }) = self.format.high else { return low };
        low.map(|(s, low)| {
            // Bit s of a byte is bit 4 of word s; or bits 2s, 2s + 1 are bits 4, 5 of word s, the words 4.. in a second row.
            let part = if bits == 1 {
                field(c, at(high), 4 - s as i64, 0x10)
            } else {
                field(c, at(high + s / 4 * WORD), 4 - 2 * (s as i64 % 4), 0x30)
            };
            (s, c.or(low, part))
        })
    }

    fn halves(&self, c: &Code<'_, 'c>, base: V<'c>, offset: usize) -> V<'c> {
        c.extf(c.read(c.offset_c(base, (offset + 2 * self.first) as i64), c.f16(), c.isa.lanes(4)), c.f32())
    }
    fn bytes(&self, c: &Code<'_, 'c>, offset: usize) -> V<'c> {
        c.read(c.offset_c(self.group, (offset + self.first) as i64), c.i8(), c.isa.lanes(4))
    }

    /// The scales `sw`, f32.
    pub fn scale(&self, c: &Code<'_, 'c>) -> V<'c> {
        let f = &self.format;
        match (f.scale, f.block_scale, f.sub) {
            (Some(at), ..) => self.halves(c, self.group, at),
            (_, Some(at), Some(sub)) if f.quant != Quant::Q6_K => {
                let sub = c.uitofp(c.zext(self.bytes(c, sub), c.i32()), c.f32());
                c.mulf(self.halves(c, self.block, at), sub) // exact
            }
            (_, at, _) => self.halves(c, self.block, at.unwrap_or(0)),
        }
    }

    /// The minima, f32, of formats that have them.
    pub fn min(&self, c: &Code<'_, 'c>) -> Option<V<'c>> {
        let f = &self.format;
        match (f.min, f.block_min, f.sub_min) {
            (Some(at), ..) => Some(self.halves(c, self.group, at)),
            (_, Some(at), Some(sub)) => {
                let sub = c.uitofp(c.zext(self.bytes(c, sub), c.i32()), c.f32());
                Some(c.mulf(c.negf(self.halves(c, self.block, at)), sub)) // exact
            }
            _ => None,
        }
    }

    /// Q6_K's integer scales of the two halves of the group, i32.
    pub fn sub(&self, c: &Code<'_, 'c>) -> Option<[V<'c>; 2]> {
        let at = self.format.sub.filter(|_| self.format.quant == Quant::Q6_K)?;
        Some([0, 1].map(|half| c.sext(self.bytes(c, at + half * panel::COLUMNS), c.i32())))
    }
}

/// Groups of a block.
pub fn groups_of_block(format: &Format) -> usize {
    (format.block / GROUP).max(1)
}

/// The bits `mask` of every byte after a shift left (right if negative). x86 shifts no bytes: 16-bit lanes are shifted, and
/// the mask takes away what crossed over.
fn field<'c>(c: &Code<'_, 'c>, x: V<'c>, left: i64, mask: i64) -> V<'c> {
    let wide = c.recast(x, c.i16());
    let shifted = if left < 0 { c.shru_c(wide, -left) } else { c.shl_c(wide, left) };
    c.and_c(c.recast(shifted, c.i8()), mask)
}
