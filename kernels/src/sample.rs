//! From logits to tokens: argmax, and sampling by the Gumbel-max trick.
//!
//! A row's token depends on its logits, its parameters and (seed, position) alone: the noise of token i is a stateless
//! function (philox) of (seed, position, i), so a batch, a restart or speculation cannot change it.
//!
//! Filters act in this order, each on what the last left: temperature, min-p, top-k, top-p as in vLLM, then typical. The
//! first ones give a lowest logit to keep; top-k's and top-p's are found by a search over the 32 bits of the logit's
//! order-preserving key: no sort, no vocabulary-sized scratch. Equal logits are kept or dropped together. The most likely
//! token is always kept by them.
//!
//! *Typical* keeps the tokens whose surprise, −ln p, is nearest to the expected one, the entropy H = −Σ p ln p: the fewest
//! whose probabilities reach typical-p. Their distance |−ln p − H| = |s − Σ p s|, where s is the scaled logit: the
//! normaliser cancels. It may drop the most likely token. The search is over the bits of the distance.

use tegula::prelude::*;

/// Bits of a float in an order that unsigned comparison keeps: larger float, larger key. NaN counts as −∞.
#[func]
pub(crate) fn key<BV: Dim>(x: Tile<f32, (One, BV)>) -> Tile<u32, (One, BV)> {
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
pub(crate) fn logits_of<BV: Dim>(logits: View<f32, 2>, row: Scalar<i32>, step: Scalar<i32>) -> Tile<f32, (One, BV)> {
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

/// Whether each logit of a step is kept by the filters before typical sampling. Never one of −∞, nor a NaN.
#[func]
fn kept<BV: Dim>(x: Tile<f32, (One, BV)>, row: Row, least: Scalar<u32>, floor: Scalar<f32>) -> Tile<bool, (One, BV)> {
    (key(x) >= least) & (scaled(x, row) >= floor) & (x > f32::NEG_INFINITY)
}

/// Unnormalised probability of the logits with a key of at least `least` and a scaled value of at least `floor`.
#[func]
fn mass<BV: Dim>(logits: View<f32, 2>, row: Row, least: Scalar<u32>, floor: Scalar<f32>) -> Scalar<f32> {
    let mut total = scalar::<f32>(0.0);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, row.at, step);
        let p = select(kept(x, row, least, floor), scaled(x, row).exp(), 0.0);
        total += p.sum::<1>().reshape::<()>();
    }
    total
}

/// What typical sampling keeps: tokens at most this far from the middle.
#[derive(Clone, Copy, Carry)]
struct Typical {
    /// Expected scaled logit of the distribution.
    mean: Scalar<f32>,
    /// Largest distance from it that is kept, as the bits of a float that is not negative: ordered as the float is.
    radius: Scalar<u32>,
}

/// How far the scaled logits of a step are from `mean`, as bits.
#[func]
fn distance<BV: Dim>(x: Tile<f32, (One, BV)>, row: Row, mean: Scalar<f32>) -> Tile<u32, (One, BV)> {
    (scaled(x, row) - mean).abs().bitcast::<u32>()
}

/// Unnormalised probability of what was kept so far and is at most `radius` from `mean`.
#[func]
fn mass_within<BV: Dim>(
    logits: View<f32, 2>,
    row: Row,
    least: Scalar<u32>,
    floor: Scalar<f32>,
    typical: Typical,
) -> Scalar<f32> {
    let mut total = scalar::<f32>(0.0);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, row.at, step);
        let within = kept(x, row, least, floor) & (distance(x, row, typical.mean) <= typical.radius);
        total += select(within, scaled(x, row).exp(), 0.0).sum::<1>().reshape::<()>();
    }
    total
}

/// The smallest radius around the expected scaled logit within which there is a share of `typical_p` of what was kept.
#[func]
fn typical<BV: Dim>(
    logits: View<f32, 2>,
    row: Row,
    least: Scalar<u32>,
    floor: Scalar<f32>,
    typical_p: Scalar<f32>,
) -> Typical {
    let (mut total, mut moment) = (scalar::<f32>(0.0), scalar::<f32>(0.0));
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, row.at, step);
        let keep = kept(x, row, least, floor);
        let s = select(keep, scaled(x, row), 0.0);
        let p = select(keep, s.exp(), 0.0);
        total += p.sum::<1>().reshape::<()>();
        // Of so unlikely a token p is 0, and s may be −∞.
        moment += select(p > 0.0, p * s, 0.0).sum::<1>().reshape::<()>();
    }
    let mean = moment / total;
    let wanted = typical_p * total;
    // The largest radius that does not suffice; the next one does.
    let mut short = scalar::<u32>(0);
    for bit in range::<i32>(0, 32) {
        let candidate = short | (constant(0x8000_0000u32) >> bit.cast::<u32>());
        let reached = mass_within::<BV>(logits, row, least, floor, Typical { mean, radius: candidate - 1 });
        short = select(reached < wanted, candidate, short);
    }
    Typical { mean, radius: short }
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
/// `params` [rows, 4]: temperature (0: the argmax), top-p, min-p, typical-p (1 keeps all). `top_k[rows]`: 0 keeps all.
/// `seeds[rows]`. `positions[rows]`: position of the token that is drawn. `tokens[rows]`: −1 where a row has no logit above
/// −∞ (a NaN counts as −∞). One program a row.
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

    let min_p = params.at((at, 2));
    let floor = select(random && min_p > 0.0, min_p.log().minimum(0.0), f32::NEG_INFINITY);
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
            let wanted = top_p * mass::<BV>(logits, row, least, floor);
            let mut lowest = scalar::<u32>(0);
            for bit in range::<i32>(0, 32) {
                let candidate = lowest | (constant(0x8000_0000u32) >> bit.cast::<u32>());
                let reached = mass::<BV>(logits, row, candidate, floor);
                lowest = select(reached >= wanted && reached > 0.0, candidate, lowest);
            }
            least = least.maximum(lowest);
        }
    }
    let typical_p = params.at((at, 3));
    let mut around = Typical { mean: scalar(0.0), radius: scalar(u32::MAX) };
    if random && typical_p < 1.0 {
        around = typical::<BV>(logits, row, least, floor, typical_p);
    }

    let mut best = scalar::<f32>(f32::NEG_INFINITY);
    // Stays so where no score is above −∞.
    let mut token = scalar::<i32>(-1);
    for step in logits.tiles_along::<1, BV>() {
        let x = logits_of::<BV>(logits, at, step);
        let ids = (iota::<BV>() + step * BV::extent() as i32).reshape::<(One, BV)>();
        let mut score = scaled(x, row);
        if random {
            let keep = (key(x) >= least) & (score >= floor) & (distance(x, row, around.mean) <= around.radius);
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
