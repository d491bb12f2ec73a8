//! Rules about which tokens may come and how likely they are, applied to logits before a token is chosen: in place, and to
//! the rows that have rules alone.
//!
//! Rules are data. *Edits* name single tokens: bias, penalties, tokens that must not come. A *mask* has a bit for each
//! token of the vocabulary: what a grammar or a list of allowed tokens leaves. Masks are applied first. What the model said
//! before its rules is kept by a copy of the row.

use tegula::prelude::*;

/// Changes single logits. One launch for all rows of a step.
///
/// `places` [2, edits]: row of the logits and token, no two the same. `values` [3, edits]: bias, repetition (above 0),
/// penalty. A logit x becomes x + bias; that is divided by the repetition if it is above 0, else multiplied by it; then the
/// penalty is subtracted. With a bias of −∞ it becomes −∞, whatever it was. Dims: BE edits a program.
#[kernel]
pub fn edit_logits<BE: Dim>(places: View<i32, 2>, values: View<f32, 2>, logits: ViewMut<f32, 2>) {
    let i = program_id(0);
    let inside = iota::<BE>() + i * (BE::extent() as i32) < places.dim::<1>();
    let row = places.load::<(One, BE)>((0, i)).reshape::<(BE,)>();
    let token = places.load::<(One, BE)>((1, i)).reshape::<(BE,)>();
    let bias = values.load::<(One, BE)>((0, i)).reshape::<(BE,)>();
    let repetition = values.load::<(One, BE)>((1, i)).reshape::<(BE,)>();
    let penalty = values.load::<(One, BE)>((2, i)).reshape::<(BE,)>();
    let x = logits.gather_masked((row, token), inside) + bias;
    let x = select(x > 0.0, x / repetition, x * repetition) - penalty;
    // ∞ − ∞ would be NaN.
    let x = select(bias == f32::NEG_INFINITY, f32::NEG_INFINITY, x);
    logits.scatter_masked((row, token), x, inside);
}

/// Leaves the allowed logits of the rows that have a mask; all others of these rows become −∞. One launch for all rows of a
/// step.
///
/// `rows[masks]`: rows of the logits, no two the same. `masks` [masks, words]: bit t % 32 of word t / 32 is 1 where token t
/// is allowed; tokens past the last word are not. `logits` [rows, vocabulary]. Dims: BW words a program. Grid: masks,
/// ⌈vocabulary / (32 · BW)⌉.
#[kernel]
pub fn mask_logits<BW: Dim>(rows: View<i32, 1>, masks: View<u32, 2>, logits: ViewMut<f32, 2>) {
    let (mask, part) = (program_id(0), program_id(1));
    let row = rows.at((mask,));
    let words = masks.load::<(One, BW)>((mask, part)).reshape::<(BW, One)>();
    let bits = (words >> iota::<C<32>>().expand::<0>().cast::<u32>()) & 1u32;
    let allowed = bits.reshape::<(One, Prod<BW, C<32>>)>() == 1u32;
    let x = logits.load::<(One, Prod<BW, C<32>>)>((row, part));
    logits.store((row, part), select(allowed, x, f32::NEG_INFINITY));
}

/// Copies rows: row i of `to` [rows, width] becomes row `rows[i]` of `from`, which is as wide. Dims: BV numbers a program.
/// Grid: rows, ⌈width / BV⌉.
#[kernel]
pub fn copy_rows<BV: Dim>(from: View<f32, 2>, rows: View<i32, 1>, to: ViewMut<f32, 2>) {
    let (i, part) = (program_id(0), program_id(1));
    to.store((i, part), from.load::<(One, BV)>((rows.at((i,)), part)));
}
