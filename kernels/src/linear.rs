//! Products with packed weights: `y[m, n] = Σ_k x[m, k] · w[k, n]` (+ what `y` held).
//!
//! The contracted axis is walked in ascending order with one accumulator per output, so a row's bits depend neither on
//! how many rows there are nor on BM, BN, BK (schedule parameters all).

use crate::quantise::Bits;
use tegula::prelude::*;

/// What happens to a product before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Add what `y` holds: the residual.
    pub residual: bool,
}

/// What a product with quantised activations is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quantised {
    /// How finely the activations are quantised.
    pub bits: Bits,
    /// What happens to the product.
    pub epilogue: Epilogue,
}

#[func]
fn store<BM: Dim, BN: Dim>(
    y: ViewMut<f32, 2>,
    m: Scalar<i32>,
    n: Scalar<i32>,
    acc: Tile<f32, (BM, BN)>,
    epilogue: Epilogue,
) {
    let out = if epilogue.residual { y.load::<(BM, BN)>((m, n)) + acc } else { acc };
    y.store((m, n), out);
}

/// Rows of codes times K × BN of the weights: tile `m` of R rows.
#[func]
fn product<R: Dim, BN: Dim, BK: Dim, GK: Dim>(
    (m, n): (Scalar<i32>, Scalar<i32>),
    codes: View<i8, 2>,
    scales: View<f32, 2>,
    sums: View<i32, 2>,
    w: Packed,
) -> Tile<f32, (R, BN)> {
    let mut acc = zeros::<f32, (R, BN)>();
    for k in w.tiles_along_k::<BK>() {
        let (c, s, u) = (codes.load::<(R, BK)>((m, k)), scales.load::<(R, GK)>((m, k)), sums.load::<(R, GK)>((m, k)));
        acc = dot_grouped(c, s, u, w.load::<(BK, BN)>((k, n)), acc);
    }
    acc
}

/// Quantised activations (see [`crate::quantise`]) times quantised weights. `codes` [R, K], `scales` and `sums` [R, K/32],
/// `w` K × N, `y` [M, N]; R is M times the rows of codes for a row, whose products are added last. Dims: BM rows, BN columns,
/// BK of K and GK = BK/32. Grid: tiles of N, tiles of M.
#[kernel]
pub fn linear_quantised<BM: Dim, BN: Dim, BK: Dim, GK: Dim>(
    codes: View<i8, 2>,
    scales: View<f32, 2>,
    sums: View<i32, 2>,
    w: Packed,
    y: ViewMut<f32, 2>,
    #[build] of: Quantised,
) {
    let (n, m) = (program_id(0), program_id(1));
    let out = match of.bits {
        Bits::Eight => product::<BM, BN, BK, GK>((m, n), codes, scales, sums, w),
        Bits::Sixteen => {
            let both = product::<Prod<C<2>, BM>, BN, BK, GK>((m, n), codes, scales, sums, w);
            both.reshape::<(BM, C<2>, BN)>().sum::<1>().reshape::<(BM, BN)>()
        }
    };
    store(y, m, n, out, of.epilogue);
}

/// f32 activations times weights of any format, dequantised on the way: `x` [M, K], `w` K × N, `y` [M, N].
/// Grid: tiles of N, tiles of M.
#[kernel]
pub fn linear<BM: Dim, BN: Dim, BK: Dim>(x: View<f32, 2>, w: Packed, y: ViewMut<f32, 2>, #[build] epilogue: Epilogue) {
    let (n, m) = (program_id(0), program_id(1));
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in w.tiles_along_k::<BK>() {
        acc = dot(x.load::<(BM, BK)>((m, k)), w.load::<(BK, BN)>((k, n)).dequant(), acc);
    }
    store(y, m, n, acc, epilogue);
}
