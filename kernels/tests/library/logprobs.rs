//! Log-probabilities beside float64, and what they do at the ends of the numbers.

use crate::support::*;
use tegula::prelude::*;
use tegula_kernels::logprobs::logprobs;

/// What an item gives: the chosen token, then the best ones.
#[derive(Debug, PartialEq)]
pub struct Got {
    pub tokens: Vec<i32>,
    pub values: Vec<f32>,
    pub rank: i32,
}

pub fn launch(stream: &Stream, logits: &[f32], v: usize, items: &[[i32; 3]], bv: usize) -> Vec<Got> {
    let (n, k) = (items.len(), 1 + items.iter().map(|i| i[2]).max().unwrap_or(0) as usize);
    let logits = tensor([logits.len() / v, v], logits);
    let wanted = tensor([n, 3], items.as_flattened());
    let (mut tokens, mut values) = (poisoned::<i32, _>([n, k]), poisoned::<f32, _>([n, k]));
    let mut ranks = poisoned::<i32, _>([n]);
    logprobs::launch(&logits, &wanted, &mut tokens, &mut values, &mut ranks).dims(bv).grid(n).run(stream).unwrap();
    (0..n)
        .map(|i| {
            let len = 1 + (items[i][2] as usize).min(v);
            Got {
                tokens: tokens.as_slice()[i * k..][..len].to_vec(),
                values: values.as_slice()[i * k..][..len].to_vec(),
                rank: ranks.as_slice()[i],
            }
        })
        .collect()
}

/// The same by sorting.
pub struct Want {
    /// Token and log-probability.
    pub entries: Vec<(usize, f64)>,
    pub rank: usize,
}

pub fn expected(logits: &[f32], chosen: usize, k: usize) -> Want {
    let wide: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();
    let max = wide.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = wide.iter().map(|x| (x - max).exp()).sum();
    let of = |t: usize| (t, wide[t] - max - sum.ln());
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| wide[b].total_cmp(&wide[a]).then(a.cmp(&b)));
    let rank = 1 + order.iter().position(|&t| t == chosen).expect("a token of the vocabulary");
    Want { entries: [chosen].into_iter().chain(order.into_iter().take(k)).map(of).collect(), rank }
}

/// Equal logits come in the order of their numbers, and a chosen one's rank is its place among them.
#[test]
fn of_equal_tokens_the_lower_is_first() {
    let mut logits = [-1.0f32; 40];
    [31, 4, 17, 18].iter().for_each(|&t| logits[t] = 2.0);
    logits[33] = 2.5;
    for stream in devices() {
        let got = launch(stream, &logits, 40, &[[0, 17, 7], [0, 39, 2]], 16);
        assert_eq!(got[0].tokens, [17, 33, 4, 17, 18, 31, 0, 1], "{}", stream.device().name());
        assert_eq!((got[0].rank, got[1].rank), (3, 40));
        assert_eq!(got[1].tokens, [39, 33, 4]);
    }
}

/// Tokens without probability have −∞, never NaN, and are the last; more than the vocabulary holds nobody gets.
#[test]
fn hopeless_and_infinite_logits() {
    let (inf, none) = (f32::INFINITY, f32::NEG_INFINITY);
    let logits = [[none, 1.0, f32::NAN, 1.0, none], [inf, 0.0, none, 2.0, 1.0], [none; 5]];
    let half = -(2f32.ln());
    for stream in devices() {
        let name = stream.device().name();
        let got = launch(stream, logits.as_flattened(), 5, &[[0, 2, 20], [1, 3, 2], [2, 1, 3]], 16);
        assert_eq!(got[0].tokens, [2, 1, 3, 0, 2, 4], "{name}");
        assert!(got[0].values[0] == none && got[0].values[3..].iter().all(|x| *x == none), "{name}: {got:?}");
        assert!(got[0].values[1..3].iter().all(|x| (x - half).abs() < 1e-6), "{name}: {got:?}");
        assert_eq!((got[1].tokens[1], got[1].values[1]), (0, 0.0), "{name}");
        assert!(got[1].values[0] < -1e38, "{name}: {got:?}");
        assert!(got[2].values.iter().all(|x| *x == none), "{name}: {got:?}");
    }
}

/// An item's numbers are the same alone and among others, whatever the others ask for.
#[test]
fn items_do_not_see_each_other() {
    let mut rng = Rng(161);
    let v = 77;
    let logits = rng.floats(6 * v, 8.0);
    let items: Vec<[i32; 3]> = (0..12).map(|i| [rng.below(6) as i32, rng.below(v) as i32, i % 6]).collect();
    let all = launch(&CPU, &logits, v, &items, 32);
    for (item, together) in items.iter().zip(all) {
        let row = item[0] as usize;
        let alone = launch(&CPU, &logits[row * v..][..v], v, &[[0, item[1], item[2]]], 32);
        assert_eq!(alone[0], together);
    }
}
