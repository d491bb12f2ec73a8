//! Single elements of packed matrices, in every layout: what `packed_gather`, and the slow forms of `dequant` and
//! `dot_grouped`, are made of. The bits are those of [`tegula_ir::layout`], which describes where they lie.

use super::super::build::{Build, Cmp, V};
use tegula_ir::{
    Quant,
    layout::{
        GROUP, Layout, code_offset,
        panel::{self, COLUMNS, High, WORD},
    },
};

/// An element: scale · sub · code + min.
pub struct Parts<'c> {
    /// i64, signed.
    pub code: V<'c>,
    /// Q6_K's integer scale, i64.
    pub sub: Option<V<'c>>,
    /// f32.
    pub scale: V<'c>,
    /// f32.
    pub min: Option<V<'c>>,
}

/// Where a packed matrix is: its format, layout, base address and rows (i64).
pub struct Place<'c> {
    pub quant: Quant,
    pub layout: Layout,
    pub base: V<'c>,
    pub rows: V<'c>,
}

impl<'c> Place<'c> {
    /// Element (k, n), which must exist, as f32.
    pub fn value(&self, b: &Build<'c>, k: V<'c>, n: V<'c>) -> V<'c> {
        if self.quant.is_float() {
            return self.float(b, k, n);
        }
        let p = self.parts(b, k, n);
        let scale = p.sub.map_or(p.scale, |s| b.mulf(p.scale, b.sitofp(s, b.f32())));
        let product = b.mulf(scale, b.sitofp(p.code, b.f32()));
        p.min.map_or(product, |m| b.addf(product, m))
    }

    /// The parts of element (k, n), which must exist, of a quantised matrix.
    pub fn parts(&self, b: &Build<'c>, k: V<'c>, n: V<'c>) -> Parts<'c> {
        match self.layout {
            Layout::Gguf => self.gguf(b, k, n),
            Layout::Panel16 => self.panel(b, k, n),
        }
    }

    fn float(&self, b: &Build<'c>, k: V<'c>, n: V<'c>) -> V<'c> {
        let index = match self.layout {
            Layout::Gguf => b.add(b.mul(n, self.rows), k),
            Layout::Panel16 => {
                let (panel, lane) = split(b, n, COLUMNS);
                b.add(b.mul_c(b.add(b.mul(panel, self.rows), k), COLUMNS as i64), lane)
            }
        };
        let at = b.offset(self.base, b.mul_c(index, self.quant.block_bytes() as i64));
        match self.quant {
            Quant::F16 => b.extf(b.load(at, b.f16(), 0, 1), b.f32()),
            Quant::BF16 => b.bitcast(b.shl_c(b.zext(b.load(at, b.i16(), 0, 1), b.i32()), 16), b.f32()),
            _ => b.load(at, b.f32(), 0, 1),
        }
    }

    fn gguf(&self, b: &Build<'c>, k: V<'c>, n: V<'c>) -> Parts<'c> {
        let (block, i) = split(b, k, self.quant.block());
        let blocks = b.shru_c(self.rows, self.quant.block().trailing_zeros().into());
        let block = b.add(b.mul(n, blocks), block);
        let block = Bytes { b, at: b.offset(self.base, b.mul_c(block, self.quant.block_bytes() as i64)) };
        let (j, e) = split(b, i, GROUP);
        let (half, lane) = split(b, e, 16);
        let nibble = |at: usize| b.and_c(b.shru(block.get(at, lane), b.shl_c(half, 2)), 15);
        let fifth = |at: usize| {
            let (byte, bit) = split(b, e, 8);
            b.shl_c(b.and_c(b.shru(block.get(at, byte), bit), 1), 4)
        };
        let zero = b.c64(0);
        let (code, mut sub) = match self.quant {
            Quant::Q4_0 => (nibble(2), None),
            Quant::Q4_1 => (nibble(4), None),
            Quant::Q5_0 => (b.or(nibble(6), fifth(2)), None),
            Quant::Q5_1 => (b.or(nibble(8), fifth(4)), None),
            Quant::Q8_0 => (block.signed(2, e), None),
            Quant::Q4_K | Quant::Q5_K => {
                let (pair, odd) = split(b, j, 2);
                let from = if self.quant == Quant::Q5_K { 48 } else { 16 };
                let low = b.and_c(b.shru(block.get(from, b.add(b.shl_c(pair, 5), e)), b.shl_c(odd, 2)), 15);
                let code = match self.quant {
                    Quant::Q5_K => b.or(low, b.shl_c(b.and_c(b.shru(block.get(16, e), j), 1), 4)),
                    _ => low,
                };
                (code, None)
            }
            _ => {
                let ((h, g), (upper, odd)) = (split(b, j, 4), split(b, b.and_c(j, 3), 2));
                let low = block.get(0, b.add(b.add(b.shl_c(h, 6), b.shl_c(odd, 5)), e));
                let low = b.and_c(b.shru(low, b.shl_c(upper, 2)), 15);
                let high = b.shru(block.get(128, b.add(b.shl_c(h, 5), e)), b.shl_c(g, 1));
                let code = b.or(low, b.shl_c(b.and_c(high, 3), 4));
                (code, Some(block.signed(192, b.add(b.shl_c(j, 1), half))))
            }
        };
        let scale = block.half(if self.quant == Quant::Q6_K { 208 } else { 0 }, zero);
        let min = self.quant.has_min().then(|| block.half(2, zero));
        let code = b.add_c(code, -i64::from(code_offset(self.quant)));
        if !matches!(self.quant, Quant::Q4_K | Quant::Q5_K) {
            return Parts { code, sub: sub.take(), scale, min };
        }
        // Scale and minimum of a group have 6 bits: for the first four groups the low 6 of bytes j and j + 4; for the
        // others a nibble of byte j + 4 under the top 2 bits of bytes j − 4 and j.
        let byte = |at: usize| block.get(at, j);
        let first = b.cmp(Cmp::Slt, j, b.c64(4));
        let above = |low: V<'c>, high: V<'c>| b.or(low, b.shl_c(b.shru_c(high, 6), 4));
        let s = b.select(first, b.and_c(byte(4), 63), above(b.and_c(byte(8), 15), byte(0)));
        let m = b.select(first, b.and_c(byte(8), 63), above(b.shru_c(byte(8), 4), byte(4)));
        let times = |d: V<'c>, v: V<'c>| b.mulf(d, b.sitofp(v, b.f32()));
        Parts { code, sub: None, scale: times(scale, s), min: min.map(|d| b.negf(times(d, m))) }
    }

    fn panel(&self, b: &Build<'c>, k: V<'c>, n: V<'c>) -> Parts<'c> {
        let f = panel::format(self.quant);
        let (panel, lane) = split(b, n, COLUMNS);
        let (block, inside) = split(b, k, f.block);
        let blocks = b.shru_c(self.rows, f.block.trailing_zeros().into());
        let block = b.add(b.mul(panel, blocks), block);
        let block = Bytes { b, at: b.offset(self.base, b.mul_c(block, f.block_bytes as i64)) };
        let (group, i) = split(b, inside, GROUP);
        let group = Bytes { b, at: b.offset(block.at, b.mul_c(group, f.group_bytes as i64)) };
        let half = b.shru_c(i, 4);

        // The code: i = 16 half + 4 word + byte.
        let byte = b.add(b.shl_c(lane, 2), b.and_c(i, 3));
        let word = b.and_c(b.shru_c(i, 2), 3);
        let bits = |offset: usize, row: V<'c>, shift: V<'c>, mask: i64| {
            b.and_c(b.shru(group.get(offset, b.add(b.mul_c(row, WORD as i64), byte)), shift), mask)
        };
        let code = if f.words == 8 {
            group.signed(0, b.add(b.mul_c(b.shru_c(i, 2), WORD as i64), byte))
        } else {
            let low = bits(0, word, b.shl_c(half, 2), 15);
            let code = match f.high {
                Some(High { at, bits: 1 }) => b.or(low, b.shl_c(bits(at, b.c64(0), b.shru_c(i, 2), 1), 4)),
                Some(High { at, .. }) => b.or(low, b.shl_c(bits(at, half, b.shl_c(word, 1), 3), 4)),
                None => low,
            };
            b.add_c(code, -i64::from(code_offset(self.quant)))
        };

        let lanes = b.shl_c(lane, 1);
        let float = |in_group: Option<usize>, in_block: Option<usize>| {
            in_group.map(|at| group.half(at, lanes)).or_else(|| in_block.map(|at| block.half(at, lanes)))
        };
        let scale = float(f.scale, f.block_scale).unwrap_or_else(|| b.cf32(0.0, 0));
        let min = float(f.min, f.block_min);
        if self.quant == Quant::Q6_K {
            let sub = f.sub.map(|at| group.signed(at, b.add(b.mul_c(half, COLUMNS as i64), lane)));
            return Parts { code, sub, scale, min };
        }
        let times = |d: V<'c>, at: usize| b.mulf(d, b.sitofp(group.get(at, lane), b.f32()));
        let scale = f.sub.map_or(scale, |at| times(scale, at));
        let min = min.map(|m| f.sub_min.map_or(m, |at| b.negf(times(m, at))));
        Parts { code, sub: None, scale, min }
    }
}

/// v / by and v % by, for a power of two.
fn split<'c>(b: &Build<'c>, v: V<'c>, by: usize) -> (V<'c>, V<'c>) {
    (b.shru_c(v, by.trailing_zeros().into()), b.and_c(v, by as i64 - 1))
}

/// Memory read by the byte.
struct Bytes<'a, 'c> {
    b: &'a Build<'c>,
    at: V<'c>,
}

impl<'c> Bytes<'_, 'c> {
    fn address(&self, offset: usize, index: V<'c>) -> V<'c> {
        self.b.offset_c(self.b.offset(self.at, index), offset as i64)
    }
    /// An unsigned byte as i64.
    fn get(&self, offset: usize, index: V<'c>) -> V<'c> {
        self.b.zext(self.b.load(self.address(offset, index), self.b.i8(), 0, 1), self.b.i64())
    }
    /// A signed byte as i64.
    fn signed(&self, offset: usize, index: V<'c>) -> V<'c> {
        self.b.sext(self.b.load(self.address(offset, index), self.b.i8(), 0, 1), self.b.i64())
    }
    /// An f16 as f32.
    fn half(&self, offset: usize, index: V<'c>) -> V<'c> {
        self.b.extf(self.b.load(self.address(offset, index), self.b.f16(), 0, 1), self.b.f32())
    }
}
