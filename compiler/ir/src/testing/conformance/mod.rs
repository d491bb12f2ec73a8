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

/// Random-looking values in −1..1 that are exact in every float type of 8 bits of precision or more.
fn noise(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    (0..n).map(|_| ((super::random::next(&mut state) >> 57) as f64 - 63.5) / 64.0).collect()
}
