//! SwiGLU: `silu(gate) · up`, with gate and up side by side in one matrix, as the merged projection gives them.

use crate::quantise::{Bits, store_row};
use tegula::prelude::*;

/// `silu(gate) · up`, silu(x) = x · sigmoid(x).
pub fn swiglu_of<S: Shape>(gate: Tile<f32, S>, up: Tile<f32, S>) -> Tile<f32, S> {
    gate * gate.sigmoid() * up
}

/// `y` [tokens, N] from `x` [tokens, 2N]: columns 0..N are the gate, N..2N the other factor. One program a row.
#[kernel]
pub fn swiglu<N: Dim>(x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let row = program_id(0);
    y.store((row, 0), swiglu_of::<(One, N)>(x.load((row, 0)), x.load((row, 1))));
}

/// The same, quantised: see [`crate::quantise::quantise`]. G = N/32.
#[kernel]
pub fn swiglu_quantise<G: Dim>(
    x: View<f32, 2>,
    codes: ViewMut<i8, 2>,
    scales: ViewMut<f32, 2>,
    sums: ViewMut<i32, 2>,
    #[build] bits: Bits,
) {
    let row = program_id(0);
    let y = swiglu_of::<(One, Prod<G, C<32>>)>(x.load((row, 0)), x.load((row, 1)));
    store_row::<G>(y, row, codes, scales, sums, bits);
}
