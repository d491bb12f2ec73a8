//! Random kernels with random inputs, the same for the same seed.
//!
//! [`program`] makes a valid kernel: loops with carried tiles, nested branches, reductions, scans, dots, masked and padded
//! views, gathers, packed operands, atomics, casts among all element types. Programs of its grid never touch each
//! other's memory (but for commuting integer atomics), so the order of programs does not matter.
//!
//! What an executor must get right bit for bit and what within a bound is kept apart: results of inexact ops (`exp`, float
//! sums, …) are only stored, into outputs of their own. What the language leaves open (the sign of a zero from `max`,
//! which NaN) never reaches a result that could tell.

mod data;
mod generate;
mod statements;

use super::{Arg, Expected, Row, on_oracle};
use crate::{Elem, Kernel, OpKind, Quant, Type, layout::Layout};
use std::collections::BTreeMap;

/// The SplitMix64 generator.
pub fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of a K × N packed matrix of random codes and moderate scales.
pub fn packed(seed: u64, quant: Quant, layout: Layout, k: usize, n: usize) -> Vec<u8> {
    data::Random(seed).packed(quant, layout, k, n)
}

/// What to make.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Statements in all; each becomes one op or a few.
    pub statements: usize,
    /// Ops that may appear as a statement. Moves, casts and constants are always there.
    pub allow: fn(OpKind) -> bool,
    /// Element types that may appear. `i32`, `i64`, `f32` and `bool` are always there.
    pub elems: fn(Elem) -> bool,
    /// Layouts of packed operands.
    pub layouts: &'static [Layout],
}

impl Default for Config {
    fn default() -> Config {
        Config { statements: 40, allow: |_| true, elems: |_| true, layouts: Layout::ALL }
    }
}

/// A random kernel with arguments. Outputs start as poison and have no expected contents yet: see [`Program::expect`].
#[derive(Clone, Debug)]
pub struct Program {
    /// Kernel, grid and arguments.
    pub row: Row,
    /// For each argument: the bound within which its contents may differ, if not at all.
    pub bounds: Vec<Option<f64>>,
}

/// The program of a seed.
pub fn program(seed: u64, config: &Config) -> Program {
    generate::Gen::new(seed, config).finish()
}

impl Program {
    /// Fills in what the oracle computes as the expected contents.
    ///
    /// # Errors
    /// The oracle (with its sanitizer) reports a fault: a bug of the generator.
    pub fn expect(mut self) -> Result<Row, String> {
        let mut args = self.row.args.clone();
        on_oracle(&self.row.kernel, &mut args, self.row.grid, false)?;
        for ((arg, after), bound) in self.row.args.iter_mut().zip(&args).zip(&self.bounds) {
            if let (Arg::View(b), Arg::View(after)) = (arg, after) {
                b.expected = Some(match bound {
                    None => Expected::Exact(after.bits()),
                    Some(bound) => Expected::Near(after.values(), *bound),
                });
            }
        }
        Ok(self.row)
    }
}

/// How often each op appears on each element type (that of its first result, or of its last operand), over many kernels.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Counts.
    pub pairs: BTreeMap<(OpKind, Elem), usize>,
}

impl Coverage {
    /// Counts a kernel's ops.
    pub fn add(&mut self, kernel: &Kernel) {
        kernel.body.walk(&mut |op| {
            let value = op.results.first().or(op.operands.last());
            let elem = value.map_or(Elem::Bool, |&v| match kernel.ty(v) {
                Type::Tile(t) => t.elem,
                Type::View(v) => v.elem,
                Type::Packed(_) | Type::QTile(_) => Elem::U8,
            });
            *self.pairs.entry((op.kind, elem)).or_insert(0) += 1;
        });
    }
    /// Ops that never appeared.
    pub fn missing(&self) -> Vec<&'static str> {
        let seen = |k: OpKind| self.pairs.keys().any(|p| p.0 == k);
        OpKind::ALL.iter().filter(|&&k| !seen(k) && !k.is_made_by_passes()).map(|k| k.name()).collect()
    }
    /// One line: how many ops of the table, how many pairs of op and element type.
    pub fn summary(&self) -> String {
        let all = OpKind::ALL.iter().filter(|k| !k.is_made_by_passes()).count();
        let ops = all - self.missing().len();
        format!(
            "{ops} of {all} ops, {} pairs of op and element type; never: {}",
            self.pairs.len(),
            self.missing().join(", ")
        )
    }
}
