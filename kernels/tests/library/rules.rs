//! Edits and masks of logits, beside float64.

use crate::support::*;
use tegula::prelude::*;
use tegula_kernels::rules::{copy_rows, edit_logits, mask_logits};

/// Row, token; bias, repetition, penalty.
pub type Edit = ((usize, usize), [f32; 3]);

/// Up to `n` edits of different logits: bias, penalties and bans, alone and together.
pub fn random_edits(rows: usize, v: usize, n: usize, rng: &mut Rng) -> Vec<Edit> {
    let places = rng.shuffled(rows * v).into_iter().take(n);
    places
        .enumerate()
        .map(|(i, at)| {
            let bias = if i % 5 == 4 { f32::NEG_INFINITY } else { rng.float() * 20.0 };
            let repetition = if i % 3 == 1 { 1.0 } else { 1.0 + rng.float() * 0.9 };
            ((at / v, at % v), [bias, repetition, if i % 2 == 0 { 0.0 } else { rng.float() * 4.0 }])
        })
        .collect()
}

/// What edits make of logits, in float64, and the size that roundings are relative to.
pub fn edited(logits: &[f32], v: usize, edits: &[Edit]) -> Vec<(f64, f64)> {
    let mut out: Vec<(f64, f64)> = logits.iter().map(|&x| (f64::from(x), f64::from(x).abs())).collect();
    for ((row, token), [bias, repetition, penalty]) in edits {
        let (x, _) = &mut out[row * v + token];
        let [bias, repetition, penalty] = [*bias, *repetition, *penalty].map(f64::from);
        let biased = *x + bias;
        let factor = if biased > 0.0 { 1.0 / repetition } else { repetition };
        let size = (x.abs() + bias.abs()) * factor + penalty.abs();
        out[row * v + token] = (biased * factor - penalty, size);
    }
    out
}

pub fn edit(stream: &Stream, logits: &[f32], v: usize, edits: &[Edit], be: usize) -> Vec<f32> {
    let of = |f: &dyn Fn(&Edit) -> f32| edits.iter().map(f).collect::<Vec<_>>();
    let values = [of(&|e| e.1[0]), of(&|e| e.1[1]), of(&|e| e.1[2])].concat();
    let places = edits.iter().map(|e| e.0.0 as i32).chain(edits.iter().map(|e| e.0.1 as i32));
    let n = edits.len();
    let mut out = tensor([logits.len() / v, v], logits);
    let (places, values) = (tensor([2, n], &places.collect::<Vec<_>>()), tensor([3, n], &values));
    edit_logits::launch(&places, &values, &mut out).dims(be).grid(n.div_ceil(be)).run(stream).unwrap();
    out.as_slice().to_vec()
}

/// What masks leave.
pub fn masked(logits: &[f32], v: usize, rows: &[i32], masks: &[u32], words: usize) -> Vec<f32> {
    let mut out = logits.to_vec();
    for (row, mask) in rows.iter().zip(masks.chunks(words)) {
        for (token, x) in out[*row as usize * v..][..v].iter_mut().enumerate() {
            if mask.get(token / 32).is_none_or(|w| w >> (token % 32) & 1 == 0) {
                *x = f32::NEG_INFINITY;
            }
        }
    }
    out
}

pub fn mask(
    stream: &Stream,
    logits: &[f32],
    v: usize,
    rows: &[i32],
    masks: &[u32],
    words: usize,
    bw: usize,
) -> Vec<f32> {
    let n = rows.len();
    let mut out = tensor([logits.len() / v, v], logits);
    let (rows, masks) = (tensor([n], rows), tensor([n, words], masks));
    mask_logits::launch(&rows, &masks, &mut out).dims(bw).grid([n, v.div_ceil(32 * bw)]).run(stream).unwrap();
    out.as_slice().to_vec()
}

/// Rows of `from` as `copy_rows` copies them, into a tensor that has one row more, and that one.
pub fn copy(stream: &Stream, from: &[f32], width: usize, rows: &[i32], bv: usize) -> (Vec<f32>, Vec<f32>) {
    let from = tensor([from.len() / width, width], from);
    let mut to = tensor([rows.len() + 1, width], &vec![7.5f32; (rows.len() + 1) * width]);
    copy_rows::launch(&from, &tensor([rows.len()], rows), &mut to)
        .dims(bv)
        .grid([rows.len(), width.div_ceil(bv)])
        .run(stream)
        .unwrap();
    let (copied, rest) = to.as_slice().split_at(rows.len() * width);
    (copied.to_vec(), rest.to_vec())
}

/// A ban holds against every logit, and an edit that says nothing changes no bit.
#[test]
fn bans_and_plain_edits_are_exact() {
    let logits = [3.5, -2.25, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::NAN, 1e-40];
    let v = logits.len();
    for stream in devices() {
        let ban: Vec<Edit> = (0..v).map(|t| ((0, t), [f32::NEG_INFINITY, 1.0, 0.5])).collect();
        assert_eq!(edit(stream, &logits, v, &ban, 4), [f32::NEG_INFINITY; 9], "{}", stream.device().name());
        let plain: Vec<Edit> = (0..v).map(|t| ((0, t), [0.0, 1.0, 0.0])).collect();
        for (got, x) in edit(stream, &logits, v, &plain, 4).iter().zip(logits) {
            assert!(*got == x || got.is_nan() && x.is_nan(), "{got} is not {x}");
        }
    }
}

/// A row's logits depend on its own edits alone, bit for bit: not on what else is in the launch, in which order, or on the
/// tile.
#[test]
fn rows_do_not_see_each_other() {
    let mut rng = Rng(160);
    let v = 61;
    let logits = rng.floats(4 * v, 6.0);
    let mut edits = random_edits(4, v, 90, &mut rng);
    let all = edit(&CPU, &logits, v, &edits, 16);
    for row in 0..4 {
        let own: Vec<Edit> = edits.iter().filter(|e| e.0.0 == row).map(|e| ((0, e.0.1), e.1)).collect();
        let alone = edit(&CPU, &logits[row * v..][..v], v, &own, 64);
        assert_eq!(
            alone.iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
            all[row * v..][..v].iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        );
    }
    edits.reverse();
    for stream in devices() {
        let other = edit(stream, &logits, v, &edits, 32);
        assert!(other.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits()), "{}", stream.device().name());
    }
}
