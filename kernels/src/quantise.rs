//! Activations in groups of 32: 8-bit codes, one f32 scale and the sum of the codes for each group.
//!
//! `scale = max|x| / 127`, `code = round(x / scale)` to nearest even, as ggml's Q8 activations. The sums serve weight formats
//! with a minimum: `Σ x ≈ scale · sum`.

use tegula::prelude::*;

/// Codes (G, 32), scales (G, 1) and code sums (G, 1) of G groups.
pub type Groups<G> = (Tile<i8, (G, C<32>)>, Tile<f32, (G, One)>, Tile<i32, (G, One)>);

/// Quantises G groups of 32. A group of zeros has scale 0.
#[func]
pub fn groups<G: Dim>(x: Tile<f32, (G, C<32>)>) -> Groups<G> {
    let scale = x.abs().max::<1>() * (1.0 / 127.0);
    let inverse = select(scale > 0.0, scalar::<f32>(1.0) / scale, 0.0);
    let codes = (x * inverse).round().cast::<i8>();
    (codes, scale, codes.cast::<i32>().sum::<1>())
}

/// Quantises a row of G groups and stores it as row `at` of the three outputs.
#[func]
pub fn store_row<G: Dim>(
    x: Tile<f32, (One, Prod<G, C<32>>)>,
    at: Scalar<i32>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
) {
    let (c, s, u) = groups(x.reshape::<(G, C<32>)>());
    codes.store((at, 0), c.reshape::<(One, Prod<G, C<32>>)>());
    scales.store((at, 0), s.reshape::<(One, G)>());
    sums.store((at, 0), u.reshape::<(One, G)>());
}

/// Quantises the rows of `x` [tokens, K]: codes [tokens, K], scales and sums [tokens, K/32]. One program a row; G = K/32.
#[kernel]
pub fn quantise<G: Dim>(x: View<f32, 2>, codes: ViewMut<i8, 2>, scales: ViewMut<f32, 2>, sums: ViewMut<i32, 2>) {
    let row = program_id(0);
    store_row::<G>(x.load((row, 0)), row, codes, scales, sums);
}
