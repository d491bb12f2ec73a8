//! The three kernels that everybody writes first: vector add, softmax, matrix product.

use tegula::prelude::*;

/// `z = x + y`, elementwise. One program a tile of BN.
#[kernel]
pub fn vector_add<T: Num, BN: Dim>(x: View<T, 1>, y: View<T, 1>, z: ViewMut<T, 1>) {
    let i = program_id(0);
    z.store(i, x.load::<(BN,)>(i) + y.load::<(BN,)>(i));
}

/// `y` = softmax of the rows of `x` [rows, at most N], computed in f32. One program a row.
#[kernel]
pub fn softmax<T: Float, N: Dim>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let row = program_id(0);
    let t = x.load_padded::<(One, N)>((row, 0), f32::NEG_INFINITY).cast::<f32>();
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), (e / e.sum::<1>()).cast());
}

/// `c` [M, N] = `a` [M, K] · `b` [K, N], accumulated in f32. One program a tile of BM × BN of `c`, numbered so that
/// neighbours share rows of `a` and columns of `b`; K is walked in steps of BK.
#[kernel]
pub fn matmul<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (m, n) = grouped::<BM, BN>(program_id(0), &c, 8);
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        acc = dot(a.load::<(BM, BK)>((m, k)), b.load::<(BK, BN)>((k, n)), acc);
    }
    c.store((m, n), acc.cast());
}
