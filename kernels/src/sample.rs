//! From logits to tokens: argmax, and sampling by the Gumbel-max trick.
//!
//! A row's token depends on its logits, its parameters and (seed, position) alone: the noise of token i is a stateless
//! function (philox) of (seed, position, i), so a batch, a restart or speculation cannot change it.
//!
//! Filters act as in vLLM, in this order: temperature, top-k, top-p (of what top-k left), min-p. Each gives a lowest logit
//! to keep, found by a search over the 32 bits of the logit's order-preserving key: no sort, no vocabulary-sized scratch.
//! Equal logits are kept or dropped together. The most likely token is always kept.

use tegula::prelude::*;

/// Bits of a float in an order that unsigned comparison keeps: larger float, larger key. NaN counts as −∞.
#[func]
fn key<BV: Dim>(x: Tile<f32, (One, BV)>) -> Tile<u32, (One, BV)> {
    let bits = x.bitcast::<u32>();
    let flipped = select((bits >> 31) == 1u32, !bits, bits | 0x8000_0000u32);
    select(x != x, 0x007f_ffffu32, flipped)
}

/// What a row's filters keep, and how its distribution is scaled.
#[derive(Clone, Copy, Carry)]
struct Row {
    /// Row of the logits.
    at: Scalar<i32>,
    /// 1 / temperature, finite.
    sharpness: Scalar<f32>,
    /// Largest logit, finite unless all are −∞.
    max: Scalar<f32>,
}

/// The logits of one step of the walk over the vocabulary; −∞ past its end.
#[func]
fn logits_of<BV: Dim>(logits: View<f32, 2>, row: Scalar<i32>, step: Scalar<i32>) -> Tile<f32, (One, BV)> {
    logits.load_padded::<(One, BV)>((row, step), f32::NEG_INFINITY)
}

/// Logarithm of each probability relative to the largest: 0 at the largest logit. +∞ counts as the largest float, since
/// ∞ − ∞ is NaN.
#[func]
fn scaled<BV: Dim>(x: Tile<f32, (One, BV)>, row: Row) -> Tile<f32, (One, BV)> {
    (select(x == f32::INFINITY, f32::MAX, x) - row.max) * row.sharpness
}

/// How many logits have a key of at least `least`.
#[func]
fn count<BV: Dim>(logits: View<f32, 2>, row: Row, least: Scalar<u32>) -> Scalar<i32> {
    let mut n = scalar::<i32>(0);
    for step in logits.tiles_along::<1, BV>() {
        n += (key(logits_of::<BV>(logits, row.at, step)) >= least).cast::<i32>().sum::<1>().reshape::<()>();
    }
    n
}

/// Unnormalised probability of the logits with a key of at least `least`.
#[func]
fn mass<BV: Dim>(logits: View<f32, 2>, row: Row, least: Scalar<u32>) -> Scalar<f32> {
    let mut total = scalar::<f32>(0.0);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, row.at, step);
        // Not of NaNs, which have the key of −∞.
        let p = select((key(x) >= least) & (x > f32::NEG_INFINITY), scaled(x, row).exp(), 0.0);
        total += p.sum::<1>().reshape::<()>();
    }
    total
}

/// Gumbel noise for each token of a step: −ln(−ln u), u uniform on the midpoints of 2^23 intervals in (0, 1). Those are
/// f32 numbers; of 2^24 intervals the last midpoint would round to 1 and its noise be ∞, which wins against any logit.
#[func]
fn gumbel<BV: Dim>(seed: Scalar<u64>, position: Scalar<i32>, tokens: Tile<i32, (One, BV)>) -> Tile<f32, (One, BV)> {
    let counter = tokens.cast::<u64>() + (position.cast::<u64>() << 32);
    let bits = philox(seed, counter)[0];
    let u = ((bits >> 9).cast::<f32>() + 0.5) * (1.0 / 8_388_608.0);
    -(-u.log()).log()
}

/// One token for each row of `logits` [rows, vocabulary].
///
/// `params` [rows, 3]: temperature (0: the argmax), top-p, min-p. `top_k[rows]`: 0 keeps all. `seeds[rows]`.
/// `positions[rows]`: position of the token that is drawn. `tokens[rows]`. One program a row.
#[kernel]
pub fn sample<BV: Dim>(
    logits: View<f32, 2>,
    params: View<f32, 2>,
    top_k: View<i32, 1>,
    seeds: View<u64, 1>,
    positions: View<i32, 1>,
    tokens: ViewMut<i32, 1>,
) {
    let at = program_id(0);
    let temperature = params.at((at, 0));
    let random = temperature > 0.0;
    let mut max = scalar::<f32>(f32::NEG_INFINITY);
    for step in logits.tiles_along::<1, BV>() {
        max = max.maximum(logits_of::<BV>(logits, at, step).max::<1>().reshape::<()>());
    }
    let sharpness = (1.0 / select(random, temperature, 1.0)).minimum(f32::MAX);
    let row = Row { at, sharpness, max: max.minimum(f32::MAX) };

    // The lowest key to keep.
    let mut least = scalar::<u32>(0);
    if random {
        let k = top_k.at((at,));
        if k > 0 && k < logits.dim::<1>() {
            for bit in range::<i32>(0, 32) {
                let candidate = least | (constant(0x8000_0000u32) >> bit.cast::<u32>());
                least = select(count::<BV>(logits, row, candidate) >= k, candidate, least);
            }
        }
        let top_p = params.at((at, 1));
        if top_p < 1.0 {
            let wanted = top_p * mass::<BV>(logits, row, least);
            let mut lowest = scalar::<u32>(0);
            for bit in range::<i32>(0, 32) {
                let candidate = lowest | (constant(0x8000_0000u32) >> bit.cast::<u32>());
                let reached = mass::<BV>(logits, row, candidate);
                lowest = select(reached >= wanted && reached > 0.0, candidate, lowest);
            }
            least = least.maximum(lowest);
        }
    }
    let min_p = params.at((at, 2));
    let floor = select(random && min_p > 0.0, min_p.log().minimum(0.0), f32::NEG_INFINITY);

    let mut best = scalar::<f32>(f32::NEG_INFINITY);
    let mut token = scalar::<i32>(0);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, at, step);
        let ids = (iota::<BV>() + step * BV::extent() as i32).reshape::<(One, BV)>();
        let mut score = scaled(x, row);
        if random {
            let keep = (key(x) >= least) & (score >= floor);
            let noise = gumbel::<BV>(seeds.at((at,)), positions.at((at,)), ids);
            score = select(keep, score + noise, f32::NEG_INFINITY);
        }
        let (here, which) = (score.max::<1>().reshape::<()>(), score.argmax::<1>().squeeze::<1>().item());
        if here > best {
            best = here;
            token = which + step * BV::extent() as i32;
        }
    }
    tokens.set((at,), token);
}
