//! The tile-level `dot_grouped`, straight from packed panels.
//!
//! Per output, groups of 32 in ascending k; per group the integer product is exact, then
//! `acc = fma(f32(i), sw·sx, acc)` and, for formats with a minimum, `acc = fma(f32(sum), m·sx, acc)`. The integer part may be
//! computed in any way, and is: by `vpdpbusd`, or `vpmaddubsw` and `vpmaddwd`. All give the same bits.
//!
//! **Signs.** Both instructions multiply unsigned by signed bytes. Weights are the unsigned side: codes are stored with an
//! offset, and `offset · Σx` is subtracted, from sums taken once for all columns ([`Activations`]). Q8_0's signed codes get
//! the offset 128 where `vpdpbusd` is at hand; `vpmaddubsw` would saturate, so there |w| is multiplied with x under w's sign.
//! That fails for x = −128 alone, which quantised activations do not have; it is looked for, and then a slower product that
//! is exact for it is used.
//!
//! **16-bit sums.** Codes of 4 bits: 8 products of pairs fit in i16 (30720); of 5 bits: 4 (31744); of 6 bits: 2 (32256).

use super::{
    Code, Isa, Stride,
    activations::{Activations, Prepare},
    integer::{Multiply, Sum},
    unpack::{Group, groups_of_block},
};
use crate::lower::cpu::build::V;
use tegula_ir::{
    Quant,
    layout::{
        code_offset,
        panel::{self, COLUMNS, Format},
    },
};

/// Rows that are few: their codes are read in place, and weights come from memory rather than from a cache.
const FEW_ROWS: usize = 4;
/// Bytes of weights between what is multiplied and what is fetched, if there are few rows.
const AHEAD: i64 = 4096;

/// A quantised product of tiles: everything known when the kernel is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Grouped {
    m: usize,
    n: usize,
    k: usize,
    format: Format,
}

/// Where its operands are.
#[derive(Clone, Copy, Debug)]
pub struct GroupedOperands<'c> {
    /// First activation code (i8, M × K), rows contiguous, and from a row to the next.
    pub codes: (V<'c>, Stride<'c>),
    /// First activation scale (f32, M × K/32), likewise.
    pub scales: (V<'c>, Stride<'c>),
    /// First code sum (i32, M × K/32), likewise. Read for formats with a minimum.
    pub sums: (V<'c>, Stride<'c>),
    /// The tile's first block in its first panel.
    pub weights: V<'c>,
    /// From a panel to the next: [`Format::panel_bytes`] of the whole matrix.
    pub panel: Stride<'c>,
    /// Rows and panels of the matrix from the tile's first on that exist; C is not touched for what is missing.
    pub exists: Option<(V<'c>, V<'c>)>,
    /// First element of C (f32, M × N), rows contiguous, and from a row to the next. Loaded, added to, stored.
    pub c: (V<'c>, Stride<'c>),
    /// [`Grouped::scratch_bytes`] of scratch memory, 64-byte aligned.
    pub scratch: V<'c>,
}

impl Grouped {
    /// The product of M rows with a K × N tile of layout `panel16`. `None` for float formats, if N is no multiple of 16, or
    /// K none of the format's block.
    pub fn new((m, n, k): (usize, usize, usize), quant: Quant) -> Option<Grouped> {
        let whole = n.is_multiple_of(COLUMNS) && k.is_multiple_of(quant.block());
        (!quant.is_float() && whole).then(|| Grouped { m, n, k, format: panel::format(quant) })
    }

    fn quant(&self) -> Quant {
        self.format.quant
    }

    /// Bytes of scratch memory that [`Grouped::emit`] wants.
    pub fn scratch_bytes(&self) -> usize {
        self.activations(None).scratch_bytes()
    }
    /// What is prepared of the activations.
    fn activations(&self, isa: Option<Isa>) -> Prepare {
        // Without an instruction set: as if everything were needed.
        let vnni = isa.is_none_or(|i| i.vnni);
        Prepare {
            m: self.m,
            k: self.k,
            in_place: self.m <= FEW_ROWS,
            offset: if self.quant() == Quant::Q8_0 && vnni { 128 } else { code_offset(self.quant()) },
            halves: self.quant() == Quant::Q6_K,
            look_for_least: self.quant() == Quant::Q8_0 && !vnni,
            sums: self.quant().has_min(),
        }
    }

    /// Appends the product.
    pub fn emit<'c>(&self, c: &Code<'_, 'c>, at: &GroupedOperands<'c>) {
        if self.m == 0 || self.n == 0 || self.k == 0 {
            return;
        }
        let x = self.activations(Some(c.isa)).emit(c, at);
        let product = |exact: bool| {
            self.product(c, at, &x, exact);
            vec![]
        };
        match x.least {
            None => drop(product(false)),
            Some(found) => drop(c.if_(found, &[], || product(true), || product(false))),
        }
    }

    fn product<'c>(&self, c: &Code<'_, 'c>, at: &GroupedOperands<'c>, x: &Activations<'c>, exact: bool) {
        // As few blocks of rows as can be, of heights h and h - 1.
        let most = if c.isa.registers() == 32 { 12 } else { 4 };
        let blocks = self.m.div_ceil(most);
        let height = self.m.div_ceil(blocks);
        let short = blocks * height - self.m;
        let rows = [(height, blocks - short, 0), (height - 1, short, (blocks - short) * height)];
        let all = c.c64((self.n / COLUMNS) as i64);
        let panels = at.exists.map_or(all, |(_, panels)| c.mins(panels, all));
        c.for_(c.c64(0), panels, c.c64(1), &[], |panel, _| {
            for (height, count, first) in rows {
                if count > 0 && height > 0 {
                    c.times(count, 1, |i| {
                        let row = c.add_c(c.mul_c(i, height as i64), first as i64);
                        Block { of: self, c, at, x, exact, row, height, panel }.emit();
                    });
                }
            }
            vec![]
        });
    }
}

/// Some rows by one panel, for all of the tile's K.
struct Block<'a, 'b, 'c> {
    of: &'a Grouped,
    c: &'a Code<'b, 'c>,
    at: &'a GroupedOperands<'c>,
    x: &'a Activations<'c>,
    exact: bool,
    row: V<'c>,
    height: usize,
    panel: V<'c>,
}

impl<'c> Block<'_, '_, 'c> {
    fn emit(&self) {
        let (c, format) = (self.c, &self.of.format);
        let lanes = c.isa.lanes(4);
        let panel = c.step(self.at.weights, self.panel, self.at.panel);
        let out = c.step(self.at.c.0, self.row, self.at.c.1);
        let out = c.step(out, self.panel, Stride::Fixed(COLUMNS as i64 * 4));
        // Registers across the panel, rows below: accumulators row by row.
        let across = COLUMNS / lanes;
        let outputs = self.height * across;
        let place = |i: usize| c.offset_c(c.step_c(out, i / across, self.at.c.1), (i % across * lanes * 4) as i64);

        // With 16 registers, more than four accumulators would not leave enough: C stays in memory then.
        let in_registers = c.isa.registers() == 32 || outputs <= 4;
        let load = || (0..outputs).map(|i| c.read(place(i), c.f32(), lanes)).collect::<Vec<_>>();
        let store = |acc: &[V<'c>]| acc.iter().enumerate().for_each(|(i, v)| c.write(*v, place(i)));
        let init = if in_registers { load() } else { vec![] };

        let blocks = c.c64((self.of.k / format.block) as i64);
        let blocks = self
            .at
            .exists
            .map_or(blocks, |(rows, _)| c.mins(blocks, c.shru_c(rows, format.block.trailing_zeros().into())));
        let per_block = groups_of_block(format) as i64;
        let acc = c.for_(c.c64(0), blocks, c.c64(1), &init, |block, acc| {
            let group = |inside: V<'c>, acc: &[V<'c>]| {
                let number = c.add(c.mul_c(block, per_block), inside);
                if in_registers {
                    return self.group(panel, block, inside, number, acc);
                }
                store(&self.group(panel, block, inside, number, &load()));
                vec![]
            };
            if per_block == 1 { group(c.c64(0), acc) } else { c.for_(c.c64(0), c.c64(per_block), c.c64(1), acc, group) }
        });
        store(&acc);
    }

    /// One group: gives the accumulators, row by row.
    fn group(&self, panel: V<'c>, block: V<'c>, inside: V<'c>, number: V<'c>, acc: &[V<'c>]) -> Vec<V<'c>> {
        let (c, format) = (self.c, self.of.format);
        let lanes = c.isa.lanes(4);
        let block = c.step(panel, block, Stride::Fixed(format.block_bytes as i64));
        let group = c.step(block, inside, Stride::Fixed(format.group_bytes as i64));
        let weights: Vec<Group<'c>> =
            (0..COLUMNS).step_by(lanes).map(|first| Group { format, block, group, first }).collect();
        if self.of.m <= FEW_ROWS {
            // Few rows wait for memory, and the hardware follows the steps of some formats badly. Panels follow one another.
            for line in (0..format.group_bytes as i64).step_by(64) {
                c.prefetch(c.offset_c(group, AHEAD + line), 3);
            }
        }
        let sub: Vec<_> = weights.iter().map(|w| w.sub(c)).collect();
        let x = self.x.group(c, self.row, number);

        // The integer parts.
        let how = Multiply::of(format.quant, c.isa, self.exact);
        let mut sums: Vec<Sum<'c>> = (0..self.height)
            .flat_map(|r| sub.iter().map(move |sub| (r, *sub)))
            .map(|(r, sub)| Sum::new(how, sub, x.correction(c, r)))
            .collect();
        for s in 0..4 {
            let words: Vec<_> = weights.iter().map(|w| w.words(c, s)).collect();
            for pair in 0..2 {
                for r in 0..self.height {
                    let codes = x.codes(c, r, words[0][pair].0);
                    for (u, words) in words.iter().enumerate() {
                        sums[r * weights.len() + u].add(c, words[pair], codes);
                    }
                }
            }
        }
        let integers: Vec<V<'c>> = sums.into_iter().map(|s| c.sitofp(s.finish(c), c.f32())).collect();

        // Then in floats.
        let scales: Vec<V<'c>> = weights.iter().map(|w| w.scale(c)).collect();
        let minima: Vec<Option<V<'c>>> = weights.iter().map(|w| w.min(c)).collect();
        (0..acc.len())
            .map(|i| {
                let (r, u) = (i / weights.len(), i % weights.len());
                let scale = c.splat(x.scale(c, r), lanes);
                let acc = c.fma(integers[i], c.mulf(scales[u], scale), acc[i]);
                minima[u].map_or(acc, |m| c.fma(c.splat(x.sum(c, r), lanes), c.mulf(m, scale), acc))
            })
            .collect()
    }
}
