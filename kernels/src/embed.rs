//! Rows of an embedding table.

use tegula::prelude::*;

/// `y` [tokens, H]: row i is column `tokens[i]` of the packed table (K = H, N = vocabulary), dequantised. One program a row.
#[kernel]
pub fn embed<H: Dim>(table: Packed, tokens: View<i32, 1>, y: ViewMut<f32, 2>) {
    let row = program_id(0);
    let x = table.column::<H>(0, tokens.at((row,)));
    y.store((row, 0), x.reshape::<(One, H)>());
}
