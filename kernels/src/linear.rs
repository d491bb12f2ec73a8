//! Products with packed weights: `y[m, n] = Σ_k x[m, k] · w[k, n]` (+ what `y` held).
//!
//! The contracted axis is walked in ascending order with one accumulator per output, so a row's bits depend neither on
//! how many rows there are nor on BM, BN, BK (schedule parameters all).

use tegula::prelude::*;

/// What happens to a product before it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// Add what `y` holds: the residual.
    pub residual: bool,
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

/// Quantised activations (see [`crate::quantise`]) times quantised weights. `codes` [M, K], `scales` and `sums` [M, K/32],
/// `w` K × N, `y` [M, N]. Dims: BM rows, BN columns, BK of K and GK = BK/32. Grid: tiles of N, tiles of M.
#[kernel]
pub fn linear_quantised<BM: Dim, BN: Dim, BK: Dim, GK: Dim>(
    codes: View<i8, 2>,
    scales: View<f32, 2>,
    sums: View<i32, 2>,
    w: Packed,
    y: ViewMut<f32, 2>,
    #[build] epilogue: Epilogue,
) {
    let (n, m) = (program_id(0), program_id(1));
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in w.tiles_along_k::<BK>() {
        let (c, s, u) =
            (codes.load::<(BM, BK)>((m, k)), scales.load::<(BM, GK)>((m, k)), sums.load::<(BM, GK)>((m, k)));
        acc = dot_grouped(c, s, u, w.load::<(BK, BN)>((k, n)), acc);
    }
    store(y, m, n, acc, epilogue);
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
