//! Small inputs that broke other tile compilers, as rows that every executor runs. Ids are those of the catalogue of
//! cases; several rows may test one case.

mod control;
mod dots;
mod memory;
mod numbers;
mod reductions;

use super::Row;

/// Every row.
pub fn rows() -> Vec<Row> {
    [memory::rows(), reductions::rows(), numbers::rows(), dots::rows(), control::rows()].concat()
}

/// Cases of the catalogue that no row can hold, and where they are tested instead.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("C34", "an analysis, not a result: compiler/ir/tests/passes/facts_assume.ir"),
    ("C69", "warp roles, which the language does not have yet"),
    ("C77", "syntax: compiler/lang/tests/flow.rs, and fail/jump_return.rs there"),
];

/// Random-looking values in −1..1 that are exact in every float type of 8 bits of precision or more.
fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    (0..n).map(|_| ((super::random::next(&mut state) >> 57) as f64 - 63.5) / 64.0).collect()
}
