//! Activations in groups of 32: 8-bit codes, one f32 scale and the sum of the codes for each group.
//!
//! `scale = max|x| / 127`, `code = round(x / scale)` to nearest even, as ggml's Q8 activations. The sums serve weight formats
//! with a minimum: `Σ x ≈ scale · sum`.
//!
//! Where 8 bits are too few, a row becomes two: its codes, and the codes of what they leave. Their products are added, and
//! with scales of their own the two rows have the precision of about 16 bits; see [`Bits`].

use tegula::prelude::*;

/// How finely activations are quantised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bits {
    /// One row of codes for a row: off by at most 1/254 of the group's largest magnitude.
    #[default]
    Eight,
    /// Two rows of codes for a row, 2i and 2i + 1 for row i: off by at most 1/64516 of it.
    Sixteen,
}

impl Bits {
    /// Rows of codes for a row.
    pub fn rows(self) -> usize {
        match self {
            Bits::Eight => 1,
            Bits::Sixteen => 2,
        }
    }
}

/// Codes (G, 32), scales (G, 1) and code sums (G, 1) of G groups.
pub type Groups<G> = (Tile<i8, (G, C<32>)>, Tile<f32, (G, One)>, Tile<i32, (G, One)>);

/// Quantises G groups of 32. A group of zeros has scale 0, one with a NaN has scale NaN, so that products with it are NaN.
/// Codes of a group whose scale is subnormal are 0: its values, below 1.5e-36, count as none.
#[func]
pub fn groups<G: Dim>(x: Tile<f32, (G, C<32>)>) -> Groups<G> {
    let scale = x.abs().max_nan::<1>() * (1.0 / 127.0);
    let inverse = select(scale >= f32::MIN_POSITIVE, scalar::<f32>(1.0) / scale, 0.0);
    let codes = (x * inverse).round().cast::<i8>();
    (codes, scale, codes.cast::<i32>().sum::<1>())
}

/// Quantises a row of G groups and stores it in the three outputs as row `at`, or as rows `2·at` and `2·at + 1`.
#[func]
pub fn store_row<G: Dim>(
    x: Tile<f32, (One, Prod<G, C<32>>)>,
    at: Scalar<i32>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
    bits: Bits,
) {
    let x = x.reshape::<(G, C<32>)>();
    let (c, s, u) = groups(x);
    match bits {
        Bits::Eight => store_groups(at, (c, s, u), codes, scales, sums),
        Bits::Sixteen => {
            store_groups(at * 2, (c, s, u), codes, scales, sums);
            store_groups(at * 2 + 1, groups(x - c.cast::<f32>() * s), codes, scales, sums);
        }
    }
}

#[func]
fn store_groups<G: Dim>(
    at: Scalar<i32>,
    (c, s, u): Groups<G>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
) {
    codes.store((at, 0), c.reshape::<(One, Prod<G, C<32>>)>());
    scales.store((at, 0), s.reshape::<(One, G)>());
    sums.store((at, 0), u.reshape::<(One, G)>());
}

/// Quantises the rows of `x` [tokens, K]: codes [R, K], scales and sums [R, K/32], R the tokens times [`Bits::rows`]. One
/// program a row of `x`; G = K/32.
#[kernel]
pub fn quantise<G: Dim>(
    x: View<f32, 2>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
    #[build] bits: Bits,
) {
    let row = program_id(0);
    store_row::<G>(x.load((row, 0)), row, codes, scales, sums, bits);
}
