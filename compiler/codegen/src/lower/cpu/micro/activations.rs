//! What `dot_grouped` prepares of the activations, once for all columns: a record a row, at a fixed distance, with the
//! groups' scales, their code sums as f32, and the corrections for the weights' offset.

use super::{
    Code, Stride,
    grouped::GroupedOperands,
    integer::{pairs_of_bytes, pairs_of_words},
};
use crate::lower::cpu::build::{Cmp, V};
use tegula_ir::layout::GROUP;

/// What to prepare.
#[derive(Clone, Copy, Debug)]
pub struct Prepare {
    /// Rows.
    pub m: usize,
    /// Codes of a row.
    pub k: usize,
    /// Codes stay where they are even if their rows' distance is known only when the kernel runs.
    pub in_place: bool,
    /// The weights' offset; 0 wants no corrections.
    pub offset: i32,
    /// A correction for every half group.
    pub halves: bool,
    /// Whether to look for a code of −128.
    pub look_for_least: bool,
    /// Whether sums are wanted.
    pub sums: bool,
}

/// Prepared activations.
pub struct Activations<'c> {
    of: Prepare,
    codes: V<'c>,
    code_row: Stride<'c>,
    records: V<'c>,
    /// Whether there is a code of −128, if that was to be looked for.
    pub least: Option<V<'c>>,
}

/// A group's activations for a block of rows.
pub struct Group<'c> {
    of: Prepare,
    codes: V<'c>,
    code_row: Stride<'c>,
    records: V<'c>,
    number: V<'c>,
}

impl Prepare {
    fn groups(&self) -> usize {
        self.k / GROUP
    }
    // A record: scales, sums, corrections, of 4 bytes each. 64 bytes between records keep them out of one set of the cache.
    fn sums_at(&self) -> i64 {
        self.groups() as i64 * 4
    }
    fn corrections_at(&self) -> i64 {
        self.groups() as i64 * 8
    }
    fn record(&self) -> i64 {
        (self.groups() * 16).next_multiple_of(64) as i64 + 64
    }
    fn code_row(&self) -> i64 {
        self.k.next_multiple_of(64) as i64 + 64
    }

    /// Bytes of scratch memory that [`Prepare::emit`] wants.
    pub fn scratch_bytes(&self) -> usize {
        let codes = if self.in_place { 0 } else { self.code_row() };
        self.m * (self.record() + codes) as usize
    }

    /// Appends the preparation.
    pub fn emit<'c>(self, c: &Code<'_, 'c>, at: &GroupedOperands<'c>) -> Activations<'c> {
        let record = |row| c.step(at.scratch, row, Stride::Fixed(self.record()));
        let (mut codes, mut code_row) = at.codes;
        if matches!(code_row, Stride::Run(_)) && !self.in_place {
            let to = c.offset_c(at.scratch, self.m as i64 * self.record());
            let row = Stride::Fixed(self.code_row());
            c.times(self.m, 1, |r| self.copy(c, 1, self.k, c.step(codes, r, code_row), c.step(to, r, row), |v| v));
            (codes, code_row) = (to, row);
        }
        c.times(self.m, 1, |r| {
            let to = record(r);
            self.copy(c, 4, self.groups(), c.step(at.scales.0, r, at.scales.1), to, |v| v);
            if self.sums {
                let from = c.step(at.sums.0, r, at.sums.1);
                self.copy(c, 4, self.groups(), from, c.offset_c(to, self.sums_at()), |v| c.sitofp(v, c.f32()));
            }
            if self.offset != 0 {
                self.correct(c, c.step(codes, r, code_row), c.offset_c(to, self.corrections_at()));
            }
        });
        let least = self.look_for_least.then(|| self.least(c, codes, code_row));
        Activations { of: self, codes, code_row, records: at.scratch, least }
    }

    /// Copies `n` integers of `bytes` bytes through `f`.
    fn copy<'c>(&self, c: &Code<'_, 'c>, bytes: usize, n: usize, from: V<'c>, to: V<'c>, f: impl Fn(V<'c>) -> V<'c>) {
        let (lanes, size) = (c.isa.lanes(bytes), Stride::Fixed(bytes as i64));
        let part = |i: V<'c>, valid: usize| {
            let v = c.read_first(c.step(from, i, size), c.int(8 * bytes as u32), lanes, valid);
            c.write_first(f(v), c.step(to, i, size), valid);
        };
        let whole = n / lanes * lanes;
        c.times(whole, lanes, |i| part(i, lanes));
        if whole < n {
            part(c.c64(whole as i64), n - whole);
        }
    }

    /// −offset · Σx of each group, or of each half.
    fn correct<'c>(&self, c: &Code<'_, 'c>, codes: V<'c>, to: V<'c>) {
        c.times(self.groups(), 1, |g| {
            let x = c.read(c.step(codes, g, Stride::Fixed(GROUP as i64)), c.i8(), GROUP);
            let fours = pairs_of_words(c, pairs_of_bytes(c, c.ints(8, GROUP, 1), x), c.ints(16, GROUP / 2, 1));
            let parts = if self.halves { 2 } else { 1 };
            let lanes = 8 / parts;
            for part in 0..parts {
                let sum = c.part(fours, part * lanes, lanes);
                let sum = c.intrinsic(&format!("llvm.vector.reduce.add.v{lanes}i32"), &[sum], c.i32());
                let at = c.step(to, c.add_c(c.mul_c(g, parts as i64), part as i64), Stride::Fixed(4));
                c.write(c.mul_c(sum, (-self.offset).into()), at);
            }
        });
    }

    fn least<'c>(&self, c: &Code<'_, 'c>, codes: V<'c>, row: Stride<'c>) -> V<'c> {
        let (zero, one, rows, end) = (c.c64(0), c.c64(1), c.c64(self.m as i64), c.c64(self.k as i64));
        let least = c.for_(zero, rows, one, &[c.zeros(c.i8(), GROUP)], |r, least| {
            let codes = c.step(codes, r, row);
            c.for_(zero, end, c.c64(GROUP as i64), least, |k, least| {
                vec![c.mins(least[0], c.read(c.offset(codes, k), c.i8(), GROUP))]
            })
        });
        c.any(c.cmp(Cmp::Eq, least[0], c.ints(8, GROUP, -128)))
    }
}

impl<'c> Activations<'c> {
    /// Group `number` of the rows from `row` on.
    pub fn group(&self, c: &Code<'_, 'c>, row: V<'c>, number: V<'c>) -> Group<'c> {
        let codes = c.offset(c.step(self.codes, row, self.code_row), c.mul_c(number, GROUP as i64));
        let records = c.step(self.records, row, Stride::Fixed(self.of.record()));
        Group { of: self.of, codes, code_row: self.code_row, records, number }
    }
}

impl<'c> Group<'c> {
    /// The four codes that meet word `s`, in every lane, of row `r` of the block.
    pub fn codes(&self, c: &Code<'_, 'c>, r: usize, s: usize) -> V<'c> {
        let at = c.offset_c(c.step_c(self.codes, r, self.code_row), 4 * s as i64);
        c.recast(c.splat(c.read(at, c.i32(), 0), c.isa.lanes(4)), c.i8())
    }
    fn number(&self, c: &Code<'_, 'c>, r: usize, offset: i64, index: V<'c>) -> V<'c> {
        let record = c.step(self.records, index, Stride::Fixed(4));
        c.offset_c(record, r as i64 * self.of.record() + offset)
    }
    /// The scale `sx` of row `r`.
    pub fn scale(&self, c: &Code<'_, 'c>, r: usize) -> V<'c> {
        c.read(self.number(c, r, 0, self.number), c.f32(), 0)
    }
    /// The code sum of row `r` as f32.
    pub fn sum(&self, c: &Code<'_, 'c>, r: usize) -> V<'c> {
        c.read(self.number(c, r, self.of.sums_at(), self.number), c.f32(), 0)
    }
    /// The corrections of row `r`: none, one, or one for each half.
    pub fn correction(&self, c: &Code<'_, 'c>, r: usize) -> Vec<V<'c>> {
        let parts = if self.of.offset == 0 { 0 } else { 1 + i64::from(self.of.halves) };
        (0..parts)
            .map(|part| {
                let index = c.mul_c(self.number, parts);
                c.read(self.number(c, r, self.of.corrections_at() + 4 * part, index), c.i32(), 0)
            })
            .collect()
    }
}
