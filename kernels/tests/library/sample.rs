//! Sampling: the greedy token, which tokens the filters keep, how often each is drawn, and that a token depends on its
//! row, its seed and its position alone. Noise is recomputed here in float64 from an independent Philox.

use crate::support::*;
use tegula::prelude::*;
use tegula_kernels::sample::sample;

/// One row's parameters.
#[derive(Clone, Copy, Debug)]
pub struct Params {
    temperature: f32,
    pub top_k: i32,
    top_p: f32,
    min_p: f32,
    typical_p: f32,
}

const PLAIN: Params = Params { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, typical_p: 1.0 };
pub const GREEDY: Params = Params { temperature: 0.0, ..PLAIN };

/// A row: logits, parameters, seed, position.
pub type Row<'a> = (&'a [f32], Params, u64, i32);

/// The tokens that rows give, each of which must give one.
pub fn draw(stream: &Stream, rows: &[Row<'_>], bv: usize) -> Vec<usize> {
    draw_any(stream, rows, bv).into_iter().map(|token| token.expect("a token")).collect()
}

/// The tokens that rows give; none of rows without usable logits.
fn draw_any(stream: &Stream, rows: &[Row<'_>], bv: usize) -> Vec<Option<usize>> {
    let (n, v) = (rows.len(), rows[0].0.len());
    let logits = tensor([n, v], &rows.iter().flat_map(|r| r.0.iter().copied()).collect::<Vec<_>>());
    let params: Vec<f32> = rows.iter().flat_map(|r| [r.1.temperature, r.1.top_p, r.1.min_p, r.1.typical_p]).collect();
    let params = tensor([n, 4], &params);
    let top_k = tensor([n], &rows.iter().map(|r| r.1.top_k).collect::<Vec<_>>());
    let seeds = tensor([n], &rows.iter().map(|r| r.2).collect::<Vec<_>>());
    let positions = tensor([n], &rows.iter().map(|r| r.3).collect::<Vec<_>>());
    let mut tokens = poisoned::<i32, _>([n]);
    sample::launch(&logits, &params, &top_k, &seeds, &positions, &mut tokens).dims(bv).grid(n).run(stream).unwrap();
    let token = |&t: &i32| if t == -1 { None } else { Some(usize::try_from(t).expect("no token was stored")) };
    tokens.as_slice().iter().map(token).collect()
}

/// Philox 4×32-10, first word.
pub fn philox(seed: u64, counter: u64) -> u32 {
    let mut c = [counter as u32, (counter >> 32) as u32, 0, 0];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c[0]
}

/// The noise of a token: uniform on the midpoints of 2^23 intervals, through −ln(−ln u).
fn gumbel(seed: u64, position: i32, token: usize) -> f64 {
    let bits = philox(seed, token as u64 + ((position as u64) << 32)) >> 9;
    -(-((f64::from(bits) + 0.5) / 8_388_608.0).ln()).ln()
}

/// Probabilities after temperature and filters, by sorting.
fn distribution(logits: &[f32], p: Params) -> Vec<f64> {
    let scaled: Vec<f64> = logits.iter().map(|&x| f64::from(x) / f64::from(p.temperature)).collect();
    let max = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mass: Vec<f64> = scaled.iter().map(|x| (x - max).exp()).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.retain(|&i| mass[i] >= f64::from(p.min_p));
    if p.top_k > 0 {
        order.truncate(p.top_k as usize);
    }
    let total: f64 = order.iter().map(|&i| mass[i]).sum();
    let mut sum = 0.0;
    let needed = order.iter().take_while(|&&i| {
        let more = sum < f64::from(p.top_p) * total;
        sum += mass[i];
        more
    });
    let needed = needed.count();
    order.truncate(needed);
    if p.typical_p < 1.0 {
        order = typical(&order, &mass, f64::from(p.typical_p));
    }
    let kept: f64 = order.iter().map(|&i| mass[i]).sum();
    let mut out = vec![0.0; logits.len()];
    order.iter().for_each(|&i| out[i] = mass[i] / kept);
    out
}

/// Of `order` those whose surprise is nearest to the entropy, until their probabilities reach `typical_p`.
fn typical(order: &[usize], mass: &[f64], typical_p: f64) -> Vec<usize> {
    let total: f64 = order.iter().map(|&i| mass[i]).sum();
    let p = |i: usize| mass[i] / total;
    let entropy: f64 = order.iter().filter(|&&i| mass[i] > 0.0).map(|&i| -p(i) * p(i).ln()).sum();
    let far = |i: usize| (-p(i).ln() - entropy).abs();
    let mut nearest = order.to_vec();
    nearest.sort_by(|&a, &b| far(a).total_cmp(&far(b)));
    let mut sum = 0.0;
    let needed = nearest.iter().take_while(|&&i| {
        let more = sum < typical_p;
        sum += p(i);
        more
    });
    let needed = needed.count();
    nearest.truncate(needed);
    nearest
}

/// The token that a row should give: the argmax, or the kept one whose logit and noise are the largest.
pub fn expected(&(logits, p, seed, position): &Row<'_>) -> usize {
    let random = p.temperature > 0.0;
    let kept = if random { distribution(logits, p) } else { vec![1.0; logits.len()] };
    let score = |i: usize| {
        let noise = if random { gumbel(seed, position, i) } else { 0.0 };
        f64::from(logits[i]) / if random { f64::from(p.temperature) } else { 1.0 } + noise
    };
    let best = |a: &usize, b: &usize| score(*a).total_cmp(&score(*b)).then(b.cmp(a));
    (0..logits.len()).filter(|&i| kept[i] > 0.0).max_by(best).expect("the most likely token is kept")
}

/// Logits no two of which are near each other, shuffled: filters cut between them, away from rounding.
pub fn spread(n: usize, step: f32, rng: &mut Rng) -> Vec<f32> {
    rng.shuffled(n).into_iter().map(|i| 3.0 - i as f32 * step).collect()
}

pub const FILTERS: [Params; 13] = [
    PLAIN,
    Params { temperature: 0.7, ..PLAIN },
    Params { temperature: 1.7, top_k: 5, ..PLAIN },
    Params { top_k: 1, ..PLAIN },
    Params { top_p: 0.63, ..PLAIN },
    Params { temperature: 1.3, top_p: 0.9, ..PLAIN },
    Params { min_p: 0.11, ..PLAIN },
    Params { temperature: 0.8, top_k: 9, top_p: 0.87, min_p: 0.05, ..PLAIN },
    Params { temperature: 1.5, top_k: 100, top_p: 0.01, min_p: 1.0, ..PLAIN },
    Params { typical_p: 0.31, ..PLAIN },
    Params { temperature: 1.4, typical_p: 0.83, ..PLAIN },
    Params { top_k: 11, top_p: 0.93, min_p: 0.04, typical_p: 0.55, ..PLAIN },
    // What min-p leaves is what top-p takes a share of.
    Params { temperature: 1.2, top_p: 0.5, min_p: 0.4, ..PLAIN },
];

#[test]
fn greedy_is_the_lowest_index_of_the_largest() {
    let mut rng = Rng(70);
    for v in [1, 2, 15, 16, 17, 50, 130] {
        let logits: Vec<Vec<f32>> = (0..7)
            .map(|case| {
                let mut x = rng.floats(v, 10.0);
                match case {
                    0 => x.iter_mut().for_each(|x| *x = x.round()), // ties
                    1 => x.fill(-3.25),
                    2 => x.iter_mut().for_each(|x| *x -= 1e30),
                    3 => x[rng.below(v)] = f32::NAN, // counts as −∞
                    4 => x[rng.below(v)] = f32::INFINITY,
                    5 => x.iter_mut().step_by(2).for_each(|x| *x = f32::NEG_INFINITY),
                    _ => {}
                }
                x
            })
            .collect();
        let usable = |x: f32| x > f32::NEG_INFINITY;
        let want: Vec<Option<usize>> = logits
            .iter()
            .map(|x| (0..v).rev().filter(|&i| usable(x[i])).max_by(|&a, &b| x[a].total_cmp(&x[b])))
            .collect();
        for stream in devices() {
            let rows: Vec<Row<'_>> = logits.iter().map(|x| (&x[..], GREEDY, 1, 2)).collect();
            assert_eq!(draw_any(stream, &rows, 16), want, "vocabulary of {v}, {}", stream.device().name());
        }
    }
}

/// A row without a logit above −∞ gives no token, whatever its parameters, and changes nothing for its neighbours.
#[test]
fn no_usable_logit_gives_no_token() {
    let mut rng = Rng(75);
    let v = 35;
    let bad: [Vec<f32>; 3] = [
        vec![f32::NAN; v],
        vec![f32::NEG_INFINITY; v],
        (0..v).map(|i| if i % 3 == 0 { f32::NAN } else { f32::NEG_INFINITY }).collect(),
    ];
    let good = spread(v, 0.2, &mut rng);
    for stream in devices() {
        for p in FILTERS.into_iter().chain([GREEDY]) {
            let mut rows: Vec<Row<'_>> = bad.iter().map(|x| (&x[..], p, 8, 4)).collect();
            rows.insert(1, (&good, p, 8, 4));
            let got = draw_any(stream, &rows, 16);
            let alone = draw(stream, &rows[1..2], 16)[0];
            assert_eq!(got, [None, Some(alone), None, None], "{p:?}, {}", stream.device().name());
        }
    }
}

/// The token is the argmax of logits plus noise, among those that the filters keep.
#[test]
fn the_drawn_token_is_the_one_that_the_noise_says() {
    let mut rng = Rng(71);
    for v in [17, 100] {
        let logits = spread(v, 0.17, &mut rng);
        let rows: Vec<Row<'_>> = (0..90)
            .map(|i| {
                (&logits[..], FILTERS[i % FILTERS.len()], rng.bits() << (i % 2 * 20), 1 + rng.below(1 << 20) as i32)
            })
            .collect();
        for stream in devices() {
            for (row, token) in rows.iter().zip(draw(stream, &rows, 32)) {
                let kept = distribution(row.0, row.1);
                let score = |i: usize| f64::from(row.0[i] / row.1.temperature) + gumbel(row.2, row.3, i);
                let best = (0..v).filter(|&i| kept[i] > 0.0).map(score).fold(f64::NEG_INFINITY, f64::max);
                assert!(kept[token] > 0.0, "{:?} drew token {token}, which the filters drop", row.1);
                // Within the rounding of f32 scores and noise.
                assert!(best - score(token) < 1e-4, "{:?} drew {token} with {}, best is {best}", row.1, score(token));
            }
        }
    }
}

/// Where the most likely token is no surprise, and surprise is what there mostly is, typical sampling drops it.
#[test]
fn typical_sampling_may_drop_the_most_likely() {
    // One token of e³, forty around 1: their share of the probability is two thirds.
    let mut logits: Vec<f32> = (0..41).map(|i| i as f32 * 0.001).collect();
    logits[7] = 3.0;
    let p = Params { typical_p: 0.5, ..PLAIN };
    assert_eq!(distribution(&logits, p)[7], 0.0);
    for (stream, draws) in [(&*CPU, 400), (&*ORACLE, 60), (&*SM80, 40)] {
        let rows: Vec<Row<'_>> = (0..draws).map(|i| (&logits[..], p, i, 2)).collect();
        let kept = distribution(&logits, p);
        assert!(draw(stream, &rows, 16).iter().all(|&t| kept[t] > 0.0), "{}", stream.device().name());
    }
    // As greedily as ever.
    assert_eq!(draw(&CPU, &[(&logits, Params { typical_p: 0.5, ..GREEDY }, 1, 2)], 16), [7]);
}

/// Draws of one distribution: exactly the reference set appears, as often as it should.
fn frequencies(stream: &Stream, p: Params, draws: usize, logits: &[f32]) {
    let want = distribution(logits, p);
    let rows: Vec<Row<'_>> = (0..draws).map(|i| (logits, p, (i / 2) as u64, (i % 2) as i32)).collect();
    let mut counts = vec![0usize; logits.len()];
    draw(stream, &rows, 32).into_iter().for_each(|t| counts[t] += 1);
    // Pearson's χ², tokens that are expected less than 8 times taken together.
    let (mut chi2, mut cells) = (0.0, 0);
    let (mut rare_want, mut rare_count) = (0.0, 0.0);
    let mut cell = |want: f64, count: f64| {
        chi2 += (count - want).powi(2) / want;
        cells += 1;
    };
    for (i, &p_i) in want.iter().enumerate() {
        let expected = p_i * draws as f64;
        if p_i == 0.0 {
            assert_eq!(counts[i], 0, "{p:?} drew token {i}, which the filters drop");
        } else if expected < 8.0 {
            rare_want += expected;
            rare_count += counts[i] as f64;
        } else {
            assert!(counts[i] > 0, "{p:?} never drew token {i}, expected {expected:.0} times");
            cell(expected, counts[i] as f64);
        }
    }
    if rare_want > 4.0 {
        cell(rare_want, rare_count);
    }
    // Mean n − 1, variance 2(n − 1); seeds are fixed, so this holds or not once and for all.
    let freedom = f64::from(cells - 1);
    let limit = freedom + 3.5 * (2.0 * freedom).sqrt() + 3.0;
    assert!(chi2 <= limit, "{p:?} on {}: χ² = {chi2:.1} with {freedom} degrees of freedom", stream.device().name());
}

#[test]
fn tokens_come_as_often_as_their_probability_says() {
    let logits = spread(50, 0.12, &mut Rng(72));
    for p in FILTERS {
        frequencies(&CPU, p, 20_000, &logits);
    }
    frequencies(&ORACLE, FILTERS[7], 600, &logits);
}

#[test]
fn equal_logits_are_kept_or_dropped_together() {
    // Of five tokens with the same logit top-k 2 keeps all: none is better than the other.
    let mut logits = [-1.0; 40];
    [3, 9, 17, 18, 39].iter().for_each(|&i| logits[i] = 2.0);
    for p in [Params { top_k: 2, ..PLAIN }, Params { top_p: 0.2, ..PLAIN }, Params { min_p: 1.0, ..PLAIN }] {
        for (stream, draws) in [(&*CPU, 2000), (&*ORACLE, 100)] {
            let rows: Vec<Row<'_>> = (0..draws).map(|i| (&logits[..], p, i as u64, 5)).collect();
            let mut seen: Vec<usize> = draw(stream, &rows, 32);
            seen.sort();
            seen.dedup();
            assert_eq!(seen, [3, 9, 17, 18, 39], "{p:?}, {}", stream.device().name());
        }
    }
}

#[test]
fn a_token_depends_on_row_seed_and_position_alone() {
    let mut rng = Rng(73);
    let v = 77;
    let logits: Vec<Vec<f32>> = (0..17).map(|_| rng.floats(v, 2.0)).collect();
    let rows: Vec<Row<'_>> = logits
        .iter()
        .enumerate()
        .map(|(i, x)| (&x[..], FILTERS[i % FILTERS.len()], rng.bits(), i as i32 * 1000))
        .collect();
    let all = draw(&CPU, &rows, 32);
    assert!(all.iter().any(|&t| t != all[0]), "every row drew the same");
    for order in [rng.shuffled(17), rng.shuffled(17)[..3].to_vec(), vec![4], vec![5, 5, 5]] {
        let some: Vec<Row<'_>> = order.iter().map(|&i| rows[i]).collect();
        let want: Vec<usize> = order.iter().map(|&i| all[i]).collect();
        assert_eq!(draw(&CPU, &some, 32), want);
        assert_eq!(draw(&CPU, &some, 64), want, "another tile");
        assert_eq!(draw(&ORACLE, &some, 32), want, "the oracle");
    }
    // And on each of them it does depend.
    let draws = |f: &dyn Fn(u64) -> (u64, i32)| {
        let rows: Vec<Row<'_>> = (0..50).map(|i| (&logits[0][..], PLAIN, f(i).0, f(i).1)).collect();
        let tokens = draw(&CPU, &rows, 32);
        tokens.iter().collect::<std::collections::HashSet<_>>().len()
    };
    assert!(draws(&|i| (i, 0)) > 10);
    assert!(draws(&|i| (i << 32, 0)) > 10, "the upper half of the seed");
    assert!(draws(&|i| (0, i as i32)) > 10);
}

/// Parameters at and past their ends still give a token that has a right to it.
#[test]
fn extreme_parameters() {
    let mut rng = Rng(74);
    let v = 45;
    let mut logits = spread(v, 0.3, &mut rng);
    logits[20] = f32::NEG_INFINITY;
    logits[21] = f32::NAN;
    let top = (0..v).filter(|&i| !logits[i].is_nan()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    let only_the_top = [
        Params { temperature: 1e-30, ..PLAIN },
        Params { temperature: 1e-42, ..PLAIN },
        Params { top_p: 0.0, ..PLAIN },
        Params { top_p: 1e-30, ..PLAIN },
        Params { min_p: 1.0, ..PLAIN },
        Params { min_p: 1.5, ..PLAIN },
        Params { top_k: 1, typical_p: 0.2, ..PLAIN },
    ];
    for p in only_the_top {
        for stream in devices() {
            let rows: Vec<Row<'_>> = (0..20).map(|i| (&logits[..], p, i, 3)).collect();
            assert!(draw(stream, &rows, 32).iter().all(|&t| t == top), "{p:?}, {}", stream.device().name());
        }
    }
    for p in [Params { temperature: 1e30, ..PLAIN }, Params { top_k: v as i32 + 1, temperature: 1e5, ..PLAIN }] {
        let rows: Vec<Row<'_>> = (0..500).map(|i| (&logits[..], p, i, 3)).collect();
        let tokens = draw(&CPU, &rows, 32);
        assert!(tokens.iter().all(|&t| t != 20 && t != 21), "{p:?} drew a token of probability 0");
        assert!(tokens.iter().collect::<std::collections::HashSet<_>>().len() == v - 2, "{p:?} is not uniform");
    }
}

/// No draw of the noise is infinite: one that were would win against any logit. Among so many tokens the largest uniform
/// numbers occur; each token but one is hopeless.
#[test]
fn the_noise_is_bounded() {
    let v = 1 << 16;
    let mut logits = vec![0.0f32; v];
    logits[777] = 40.0;
    let rows: Vec<Row<'_>> = (0..600).map(|i| (&logits[..], PLAIN, 99, i)).collect();
    for rows in rows.chunks(100) {
        assert_eq!(draw(&CPU, rows, 2048), vec![777; rows.len()]);
    }
}
