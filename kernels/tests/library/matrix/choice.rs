//! The choice of a token: rules on logits, sampling, log-probabilities.

use super::{
    Case,
    measure::{Allowed, F32, Measure},
};
use crate::{logprobs, rules, sample, support::*};
use tegula::prelude::*;

pub const CASES: &[Case] = &[
    Case {
        kernel: "edit_logits",
        of: "",
        unit: "2⁻²⁴ of \\|x\\| + \\|bias\\|, repeated, + \\|penalty\\|",
        bound: "3",
        run: edits,
    },
    Case { kernel: "mask_logits", of: "", unit: "", bound: "", run: masks },
    Case { kernel: "copy_rows", of: "", unit: "", bound: "", run: copies },
    Case { kernel: "sample", of: "", unit: "", bound: "", run: samples },
    Case { kernel: "logprobs", of: "", unit: "2⁻²⁴ of 1 + \\|ln p\\|", bound: "n + 48", run: logprobs },
];

fn edits(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(150);
    for (rows, v, n) in [(1, 1, 1), (3, 97, 0), (3, 97, 31), (5, 130, 64), (2, 50, 100), (4, 33, 65)] {
        let logits = rng.floats(rows * v, 9.0);
        let edits = rules::random_edits(rows, v, n, &mut rng);
        let want = rules::edited(&logits, v, &edits);
        let got = rules::edit(stream, &logits, v, &edits, 32);
        // Bans are compared as bits, all else by its error.
        let finite = |i: &usize| want[*i].0.is_finite();
        let (near, bans): (Vec<usize>, Vec<usize>) = (0..rows * v).partition(finite);
        let of = |places: &[usize]| -> Vec<f32> { places.iter().map(|&i| got[i]).collect() };
        m.exact("bans", &of(&bans), &vec![f32::NEG_INFINITY; bans.len()]);
        let values: Vec<f64> = near.iter().map(|&i| want[i].0).collect();
        m.near(&format!("{n} edits of {rows} × {v}"), &of(&near), &values, |i| Allowed {
            unit: want[near[i]].1 * F32,
            bound: 3.0,
        });
    }
}

fn masks(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(151);
    for (rows, v, n, words) in
        [(1, 1, 1, 1), (3, 97, 0, 4), (4, 97, 2, 4), (5, 130, 5, 5), (3, 130, 2, 3), (2, 64, 1, 2)]
    {
        let logits = rng.floats(rows * v, 9.0);
        let chosen: Vec<i32> = rng.shuffled(rows)[..n].iter().map(|&r| r as i32).collect();
        let masks: Vec<u32> = (0..n * words).map(|_| rng.bits() as u32).collect();
        let want = rules::masked(&logits, v, &chosen, &masks, words);
        let got = rules::mask(stream, &logits, v, &chosen, &masks, words, 2);
        m.exact(&format!("{n} masks of {words} words, {rows} × {v}"), &got, &want);
    }
}

fn copies(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(153);
    for (rows, width, n) in [(1, 1, 1), (3, 97, 0), (4, 97, 2), (5, 130, 5), (3, 64, 1), (2, 33, 2)] {
        let from = rng.floats(rows * width, 9.0);
        let chosen: Vec<i32> = (0..n).map(|_| rng.below(rows) as i32).collect();
        let want: Vec<f32> = chosen.iter().flat_map(|&r| from[r as usize * width..][..width].to_vec()).collect();
        let (got, rest) = rules::copy(stream, &from, width, &chosen, 32);
        m.exact(&format!("{n} rows of {rows} × {width}"), &got, &want);
        m.exact("the row past them", &rest, &vec![7.5; width]);
    }
}

/// Rows with every filter and without: the token is the one that float64 finds, noise included.
fn samples(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(132);
    for v in [1, 17, 32, 33, 97] {
        let mut rows = vec![];
        let logits: Vec<Vec<f32>> = (0..12).map(|i| sample::spread(v, [0.11, 0.4][i % 2], &mut rng)).collect();
        for (i, x) in logits.iter().enumerate() {
            let mut p = if i < 3 { sample::GREEDY } else { sample::FILTERS[i % sample::FILTERS.len()] };
            p.top_k = p.top_k.min(v as i32);
            rows.push((&x[..], p, rng.bits(), rng.below(5000) as i32));
        }
        let want: Vec<i32> = rows.iter().map(|r| sample::expected(r) as i32).collect();
        let got: Vec<i32> = sample::draw(stream, &rows, 32).iter().map(|&t| t as i32).collect();
        m.exact(&format!("vocabulary of {v}"), &got, &want);
    }
}

fn logprobs(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(152);
    for v in [1, 17, 32, 33, 97] {
        let logits: Vec<Vec<f32>> = (0..5).map(|i| sample::spread(v, [0.11, 0.4][i % 2], &mut rng)).collect();
        let items: Vec<[i32; 3]> =
            (0..9).map(|i| [rng.below(5) as i32, rng.below(v) as i32, [0, 1, 3, 7, 20][i % 5]]).collect();
        let got = logprobs::launch(stream, &logits.concat(), v, &items, 32);
        for (item, got) in items.iter().zip(got) {
            let want = logprobs::expected(&logits[item[0] as usize], item[1] as usize, item[2] as usize);
            let ids = |e: &[(usize, f64)]| -> Vec<i32> { e.iter().map(|e| e.0 as i32).collect() };
            m.exact(&format!("tokens of {item:?}"), &got.tokens, &ids(&want.entries));
            m.exact(&format!("rank of {item:?}"), &[got.rank], &[want.rank as i32]);
            let values: Vec<f64> = want.entries.iter().map(|e| e.1).collect();
            m.near(&format!("{item:?} of {v}"), &got.values, &values, |i| Allowed {
                unit: (1.0 + values[i].abs()) * F32,
                bound: v as f64 + 48.0,
            });
        }
    }
}
