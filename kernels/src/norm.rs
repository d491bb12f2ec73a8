//! RMS norm: `y = x / sqrt(mean(x²) + eps) · weight`, over each row.

use crate::quantise::{Bits, store_row};
use tegula::prelude::*;

/// The norm of one row of N elements.
#[func]
pub fn rms<N: Dim>(x: Tile<f32, (One, N)>, weight: Tile<f32, (One, N)>, eps: Scalar<f32>) -> Tile<f32, (One, N)> {
    let mean = (x * x).sum::<1>() / N::extent() as f32;
    x * (scalar::<f32>(1.0) / (mean + eps).sqrt()) * weight
}

/// `y` = norm of the rows of `x` [tokens, N]; `weight` [1, N]. One program a row.
#[kernel]
pub fn rms_norm<N: Dim>(x: View<f32, 2>, weight: View<f32, 2>, y: ViewMut<f32, 2>, eps: Scalar<f32>) {
    let row = program_id(0);
    y.store((row, 0), rms::<N>(x.load((row, 0)), weight.load((0, 0)), eps));
}

/// The norm of row `rows[i]` of `x` becomes row i of `y` (the rows that a step reads logits of). One program a row.
#[kernel]
pub fn rms_norm_rows<N: Dim>(
    x: View<f32, 2>,
    weight: View<f32, 2>,
    rows: View<i32, 1>,
    y: ViewMut<f32, 2>,
    eps: Scalar<f32>,
) {
    let i = program_id(0);
    y.store((i, 0), rms::<N>(x.load((rows.at((i,)), 0)), weight.load((0, 0)), eps));
}

/// Norm and quantisation in one pass: see [`crate::quantise::quantise`]. G = N/32.
#[kernel]
pub fn rms_norm_quantise<G: Dim>(
    x: View<f32, 2>,
    weight: View<f32, 2>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
    eps: Scalar<f32>,
    #[build] bits: Bits,
) {
    let row = program_id(0);
    let y = rms::<Prod<G, C<32>>>(x.load((row, 0)), weight.load((0, 0)), eps);
    store_row::<G>(y, row, codes, scales, sums, bits);
}
