//! Log-probabilities: of a chosen token, and of the most likely ones.

use crate::sample::{key, logits_of};
use tegula::prelude::*;

/// For each item the log-probability and the rank of a chosen token, and the most likely tokens with theirs.
///
/// `items` [items, 3 or more]: row of the logits, chosen token, how many of the most likely tokens. `tokens` and `values` [items,
/// 1 + K]: the chosen token and its natural log-probability, then the most likely ones, best first, of equals the lower token
/// first; what an item did not ask for is left as it is, so K is the largest number asked for. `ranks[items]`: place of the
/// chosen token in that order, from 1. Of a logit that is NaN or −∞ it is −∞. One program an item, one walk over the
/// vocabulary for each token.
#[kernel]
pub fn logprobs<BV: Dim>(
    logits: View<f32, 2>,
    items: View<i32, 2>,
    tokens: ViewMut<i32, 2>,
    values: ViewMut<f32, 2>,
    ranks: ViewMut<i32, 1>,
) {
    let item = program_id(0);
    let (row, chosen) = (items.at((item, 0)), items.at((item, 1)));
    let vocabulary = logits.dim::<1>();

    let mut max = scalar::<f32>(f32::NEG_INFINITY);
    for step in logits.tiles_along::<1, BV>() {
        max = max.maximum(logits_of::<BV>(logits, row, step).max::<1>().reshape::<()>());
    }
    let max = max.minimum(f32::MAX);

    let own = key(logits.at((row, chosen)).reshape::<(One, One)>()).reshape::<()>();
    let mut sum = scalar::<f32>(0.0);
    let mut rank = scalar::<i32>(1);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, row, step);
        let ids = (iota::<BV>() + step * BV::extent() as i32).reshape::<(One, BV)>();
        let better = (key(x) > own) | ((key(x) == own) & (ids < chosen));
        rank += better.cast::<i32>().sum::<1>().reshape::<()>();
        // ∞ counts as the largest float, as in sampling.
        let p = select(x > f32::NEG_INFINITY, (x.minimum(f32::MAX) - max).exp(), 0.0);
        sum += p.sum::<1>().reshape::<()>();
    }
    let log_sum = sum.log();
    tokens.set((item, 0), chosen);
    values.set((item, 0), logprob(logits.at((row, chosen)), max, log_sum));
    ranks.set((item,), rank);

    // Each next token is the best of those after the last in the order.
    let (mut last, mut token) = (scalar::<u32>(u32::MAX), scalar::<i32>(-1));
    for i in range(1, items.at((item, 2)).minimum(vocabulary) + 1) {
        let (mut best, mut which) = (scalar::<u32>(0), scalar::<i32>(0));
        for step in logits.tiles_along::<1, BV>() {
            let at = key(logits_of::<BV>(logits, row, step));
            let ids = (iota::<BV>() + step * BV::extent() as i32).reshape::<(One, BV)>();
            let after = ((at < last) | ((at == last) & (ids > token))) & (ids < vocabulary);
            // Every logit's key is above 0.
            let left = select(after, at, 0u32);
            let here = left.max::<1>().reshape::<()>();
            if here > best {
                best = here;
                which = left.argmax::<1>().squeeze::<1>().item() + step * BV::extent() as i32;
            }
        }
        (last, token) = (best, which);
        tokens.set((item, i), token);
        values.set((item, i), logprob(logits.at((row, token)), max, log_sum));
    }
}

/// ln p of a logit.
#[func]
fn logprob(x: Scalar<f32>, max: Scalar<f32>, log_sum: Scalar<f32>) -> Scalar<f32> {
    select(x > f32::NEG_INFINITY, x.minimum(f32::MAX) - max - log_sum, f32::NEG_INFINITY)
}
