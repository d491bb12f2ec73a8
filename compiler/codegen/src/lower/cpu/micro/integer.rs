//! The exact integer product of a group, by the byte multiplications that x86 has.

use super::{Code, Isa};
use crate::lower::cpu::build::{Cmp, V};
use tegula_ir::Quant;

/// How the words of a group are multiplied with activation codes and summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// `vpdpbusd`: four products a lane into i32; signed weights by the offset 128.
    Vnni { signed: bool },
    /// `vpmaddubsw` into i16, as many words as cannot overflow, then `vpmaddwd` into i32: unsigned weights.
    Narrow { words: usize },
    /// `vpmaddubsw` of |w| and x under w's sign, `vpmaddwd` into i32: signed weights, x above −128.
    Signed,
    /// Even and odd bytes widened to i16, `vpmaddwd`: signed weights.
    Wide,
}

impl Multiply {
    /// The best for a format. `exact`: signed weights may meet x = −128.
    pub fn of(quant: Quant, isa: Isa, exact: bool) -> Multiply {
        match quant {
            _ if isa.vnni => Multiply::Vnni { signed: quant == Quant::Q8_0 },
            Quant::Q8_0 if exact => Multiply::Wide,
            Quant::Q8_0 => Multiply::Signed,
            Quant::Q6_K => Multiply::Narrow { words: 2 },
            Quant::Q5_0 | Quant::Q5_1 | Quant::Q5_K => Multiply::Narrow { words: 4 },
            _ => Multiply::Narrow { words: 8 },
        }
    }
}

/// The sum of one group for one row and one register of columns, under construction.
pub struct Sum<'c> {
    how: Multiply,
    /// Integer scales of the group's halves; then there are two sums.
    sub: Option<[V<'c>; 2]>,
    /// What the sums start from, scalars; empty for 0.
    start: Vec<V<'c>>,
    total: [Option<V<'c>>; 2],
    /// i16 sums, and of how many words.
    narrow: [(Option<V<'c>>, usize); 2],
}

impl<'c> Sum<'c> {
    /// A sum that starts from `start`: one number, or one for each half, or none.
    pub fn new(how: Multiply, sub: Option<[V<'c>; 2]>, start: Vec<V<'c>>) -> Self {
        Sum { how, sub, start, total: [None; 2], narrow: [(None, 0); 2] }
    }

    /// Adds word `s`, `w`, times the codes `x` (four consecutive ones in every lane).
    pub fn add(&mut self, c: &Code<'_, 'c>, (s, w): (usize, V<'c>), x: V<'c>) {
        let part = if self.sub.is_some() { s / 4 } else { 0 };
        match self.how {
            Multiply::Vnni { signed } => {
                // The offset 128 of signed weights is in the start.
                let w = if signed { c.xor(w, c.ints(8, c.isa.lanes(1), 0x80)) } else { w };
                let from = self.total[part].unwrap_or_else(|| self.start_of(c, part));
                let name =
                    if c.isa.bits == 512 { "llvm.x86.avx512.vpdpbusd.512" } else { "llvm.x86.avx512.vpdpbusd.256" };
                self.total[part] = Some(c.intrinsic(name, &[from, w, x], c.vec(c.i32(), c.isa.lanes(4))));
            }
            Multiply::Narrow { words } => {
                let product = pairs_of_bytes(c, w, x);
                let (sum, count) = &mut self.narrow[part];
                *sum = Some(sum.map_or(product, |sum| c.add(sum, product)));
                *count += 1;
                if *count == words {
                    self.flush(c, part);
                }
            }
            Multiply::Signed => {
                let zero = c.zeros(c.i8(), c.isa.lanes(1));
                let (size, x) = if c.isa.bits == 512 {
                    // There is no psign of 512 bits.
                    (c.absi(w), c.select(c.cmp(Cmp::Slt, w, zero), c.sub(zero, x), x))
                } else {
                    (c.absi(w), c.intrinsic("llvm.x86.avx2.psign.b", &[x, w], c.vec(c.i8(), 32)))
                };
                let product = pairs_of_words(c, pairs_of_bytes(c, size, x), c.ints(16, c.isa.lanes(2), 1));
                self.accumulate(c, part, product);
            }
            Multiply::Wide => {
                let halves = |v| {
                    let v = c.recast(v, c.i16());
                    let by = c.int_like(v, 8);
                    [c.shrs(c.shl(v, by), by), c.shrs(v, by)]
                };
                for (w, x) in halves(w).into_iter().zip(halves(x)) {
                    let product = pairs_of_words(c, w, x);
                    self.accumulate(c, part, product);
                }
            }
        }
    }

    /// The group's integer.
    pub fn finish(mut self, c: &Code<'_, 'c>) -> V<'c> {
        for part in 0..2 {
            if self.narrow[part].0.is_some() {
                self.flush(c, part);
            }
        }
        let vnni = matches!(self.how, Multiply::Vnni { .. });
        let [first, second] = [0, 1].map(|part| self.total[part].unwrap_or_else(|| self.start_of(c, part)));
        match self.sub {
            Some([low, high]) if vnni => c.add(c.mul(first, low), c.mul(second, high)),
            // The scales are in the products already, but not in the start.
            Some(sub) => sub
                .into_iter()
                .enumerate()
                .fold(c.add(first, second), |sum, (part, sub)| c.add(sum, c.mul(self.start_of(c, part), sub))),
            None if vnni || self.start.is_empty() => first,
            None => c.add(first, self.start_of(c, 0)),
        }
    }

    fn start_of(&self, c: &Code<'_, 'c>, part: usize) -> V<'c> {
        let lanes = c.isa.lanes(4);
        self.start.get(part).map_or_else(|| c.zeros(c.i32(), lanes), |start| c.splat(*start, lanes))
    }

    /// i16 sums into the i32 sum, times the half's scale.
    fn flush(&mut self, c: &Code<'_, 'c>, part: usize) {
        let Some(sum) = std::mem::take(&mut self.narrow[part]).0 else { return };
        let scale = match self.sub {
            // In both halves of the lane.
            Some(sub) => c.recast(c.or(c.shl_c(sub[part], 16), c.and_c(sub[part], 0xffff)), c.i16()),
            None => c.ints(16, c.isa.lanes(2), 1),
        };
        let product = pairs_of_words(c, sum, scale);
        self.accumulate(c, part, product);
    }

    fn accumulate(&mut self, c: &Code<'_, 'c>, part: usize, product: V<'c>) {
        self.total[part] = Some(self.total[part].map_or(product, |sum| c.add(sum, product)));
    }
}

/// Unsigned bytes of `w` times signed bytes of `x`; neighbours summed, saturating, to i16.
pub fn pairs_of_bytes<'c>(c: &Code<'_, 'c>, w: V<'c>, x: V<'c>) -> V<'c> {
    let (name, lanes) = match c.lanes(w) {
        64 => ("llvm.x86.avx512.pmaddubs.w.512", 32),
        _ => ("llvm.x86.avx2.pmadd.ub.sw", 16),
    };
    c.intrinsic(name, &[w, x], c.vec(c.i16(), lanes))
}

/// Products of i16; neighbours summed to i32.
pub fn pairs_of_words<'c>(c: &Code<'_, 'c>, x: V<'c>, y: V<'c>) -> V<'c> {
    let (name, lanes) = match c.lanes(x) {
        32 => ("llvm.x86.avx512.pmaddw.d.512", 16),
        _ => ("llvm.x86.avx2.pmadd.wd", 8),
    };
    c.intrinsic(name, &[x, y], c.vec(c.i32(), lanes))
}
