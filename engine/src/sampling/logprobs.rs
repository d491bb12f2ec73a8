//! Log-probabilities of tokens.

use serde::{Deserialize, Serialize};

/// What a token without probability has: no number of JSON is −∞.
pub const LEAST_LOGPROB: f32 = -9999.0;

/// A token with its natural log-probability: finite, and [`LEAST_LOGPROB`] at least.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// ln p.
    pub logprob: f32,
}

impl Logprob {
    /// Of what a computation gave, which may be −∞ or NaN.
    pub fn new(token: u32, logprob: f32) -> Logprob {
        // Rounding may leave a probability a little above 1.
        let logprob = if logprob.is_nan() { LEAST_LOGPROB } else { logprob.clamp(LEAST_LOGPROB, 0.0) };
        Logprob { token, logprob }
    }
}

/// Log-probabilities at one position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprobs {
    /// The token that is there.
    pub chosen: Logprob,
    /// Its place among all tokens, from 1.
    pub rank: u32,
    /// The most likely tokens, best first; of equals the lower first.
    pub top: Vec<Logprob>,
}

/// Log-probabilities from a row of logits, on the host in float64: of `chosen` and of the `k` most likely. A NaN is as −∞.
///
/// This is the definition that the kernel is compared with, and serves where logits are on the host anyway. `None` if
/// `chosen` is no token.
pub fn host_logprobs(logits: &[f32], chosen: u32, k: usize) -> Option<TokenLogprobs> {
    let value = |x: f32| if x.is_nan() { f64::NEG_INFINITY } else { f64::from(x.min(f32::MAX)) };
    let own = value(*logits.get(chosen as usize)?);
    let max = logits.iter().map(|&x| value(x)).fold(f64::from(f32::MIN), f64::max);
    let log_sum = logits.iter().map(|&x| (value(x) - max).exp()).sum::<f64>().ln();
    let logprob = |token: u32| Logprob::new(token, (value(logits[token as usize]) - max - log_sum) as f32);
    let before = |a: u32, b: u32| value(logits[b as usize]).total_cmp(&value(logits[a as usize])).then(a.cmp(&b));
    let mut order: Vec<u32> = (0..logits.len() as u32).collect();
    let rank = 1 + logits.iter().zip(0..).filter(|&(&x, t)| value(x) > own || value(x) == own && t < chosen).count();
    let k = k.min(order.len());
    if k > 0 && k < order.len() {
        order.select_nth_unstable_by(k - 1, |&a, &b| before(a, b));
    }
    order.truncate(k);
    order.sort_unstable_by(|&a, &b| before(a, b));
    let top = order.into_iter().map(logprob).collect();
    Some(TokenLogprobs { chosen: logprob(chosen), rank: rank as u32, top })
}
