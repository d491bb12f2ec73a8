//! Packed weights as f32. Bits are those of
//! [`Layout::decode`](tegula_ir::layout::Layout::decode).

use super::{
    Code, Stride,
    unpack::{Group, groups_of_block},
};
use crate::lower::cpu::build::{Build, Cmp, V};
use tegula_ir::{
    Quant,
    layout::{
        GROUP, code_offset,
        panel::{self, COLUMNS, Format},
    },
};

/// A tile of a packed matrix (layout `panel16`): everything known when the kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Dequant {
    k: usize,
    n: usize,
    format: Format,
}

/// Where it is, and where its values go.
#[derive(Clone, Copy, Debug)]
pub struct DequantOperands<'c> {
    /// The tile's first block in its first panel.
    pub weights: V<'c>,
    /// From a panel to the next.
    pub panel: Stride<'c>,
    /// Rows and panels of the matrix from the tile's first on that exist.
    pub exists: (V<'c>, V<'c>),
    /// First element of the result (f32, K × N), rows contiguous, and from a row to the next. All of it is written: what
    /// the matrix lacks is 0.
    pub to: (V<'c>, Stride<'c>),
}

impl Dequant {
    /// A K × N tile. `None` if N is no multiple of 16, or K none of the format's block.
    pub fn new((k, n): (usize, usize), quant: Quant) -> Option<Dequant> {
        (n.is_multiple_of(COLUMNS) && k.is_multiple_of(quant.block())).then(|| Dequant {
            k,
            n,
            format: panel::format(quant),
        })
    }

    /// Appends the conversion.
    pub fn emit<'c>(&self, c: &Code<'_, 'c>, at: &DequantOperands<'c>) {
        let (rows, panels) = at.exists;
        let block = self.format.block;
        let (zero, one) = (c.c64(0), c.c64(1));
        c.times(self.n / COLUMNS, 1, |p| {
            let weights = c.step(at.weights, p, at.panel);
            let to = c.step(at.to.0, p, Stride::Fixed(4 * COLUMNS as i64));
            let there = c.cmp(Cmp::Slt, p, panels);
            let blocks = c.mins(c.shru_c(rows, block.trailing_zeros().into()), c.c64((self.k / block) as i64));
            let blocks = c.select(there, blocks, zero);
            c.for_(zero, blocks, one, &[], |b, _| {
                self.block(c, c.step(weights, b, Stride::Fixed(self.format.block_bytes as i64)), |k| {
                    c.step(to, c.add(c.mul_c(b, block as i64), k), at.to.1)
                });
                vec![]
            });
            c.for_(c.mul_c(blocks, block as i64), c.c64(self.k as i64), one, &[], |k, _| {
                c.write(c.zeros(c.f32(), COLUMNS), c.step(to, k, at.to.1));
                vec![]
            });
        });
    }

    /// One block of one panel, row `k` of it to `to(k)`.
    fn block<'c>(&self, c: &Code<'_, 'c>, block: V<'c>, to: impl Fn(V<'c>) -> V<'c>) {
        if self.format.words == 0 {
            return c.write(float(c, self.format.quant, block, COLUMNS), to(c.c64(0)));
        }
        c.times(groups_of_block(&self.format), 1, |g| {
            let group = c.step(block, g, Stride::Fixed(self.format.group_bytes as i64));
            for first in (0..COLUMNS).step_by(c.isa.lanes(4)) {
                self.group(c, &Group { format: self.format, block, group, first }, |i| {
                    c.offset_c(to(c.add_c(c.mul_c(g, GROUP as i64), i)), 4 * first as i64)
                });
            }
        });
    }

    fn group<'c>(&self, c: &Code<'_, 'c>, group: &Group<'c>, to: impl Fn(i64) -> V<'c>) {
        let quant = self.format.quant;
        let (scale, min, sub) = (group.scale(c), group.min(c), group.sub(c));
        let scales = sub.map_or([scale; 2], |sub| sub.map(|s| c.mulf(scale, c.sitofp(s, c.f32()))));
        for (s, word) in (0..4).flat_map(|step| group.words(c, step)) {
            let word = c.recast(word, c.i32());
            for j in 0..4 {
                // Byte j of each lane: k = 4s + j.
                let code = if quant == Quant::Q8_0 {
                    c.shrs(c.shl_c(word, 24 - 8 * j), c.int_like(word, 24))
                } else {
                    let code = c.and_c(c.shru_c(word, 8 * j), 0xff);
                    c.add_c(code, -i64::from(code_offset(quant)))
                };
                let value = c.mulf(scales[s / 4], c.sitofp(code, c.f32()));
                c.write(min.map_or(value, |m| c.addf(value, m)), to(4 * s as i64 + j));
            }
        }
    }
}

/// Elements of a float format as f32: a scalar for 0 lanes.
fn float<'c>(b: &Build<'c>, quant: Quant, at: V<'c>, lanes: usize) -> V<'c> {
    match quant {
        Quant::F16 => b.extf(b.load(at, b.f16(), lanes, 1), b.f32()),
        Quant::BF16 => b.bitcast(b.shl_c(b.zext(b.load(at, b.i16(), lanes, 1), b.i32()), 16), b.f32()),
        _ => b.load(at, b.f32(), lanes, 1),
    }
}
