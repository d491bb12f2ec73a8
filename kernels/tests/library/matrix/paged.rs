//! The paged cache: rotary embedding, attention; and sampling.

use super::{
    Case,
    measure::{Allowed, F16, F32, Measure},
};
use crate::{attention, support::*};
use half::f16;
use tegula::prelude::*;
use tegula_kernels::rope::{Heads, Pairs, rope_and_cache};

pub const CASES: &[Case] = &[
    Case {
        kernel: "rope_and_cache",
        of: "adjacent",
        unit: "2⁻²⁴ (cache: 2⁻¹¹) of Σ\\|x·turn\\|",
        bound: "2",
        run: |s, m| turns(s, m, Pairs::Adjacent),
    },
    Case {
        kernel: "rope_and_cache",
        of: "halves",
        unit: "2⁻²⁴ (cache: 2⁻¹¹) of Σ\\|x·turn\\|",
        bound: "2",
        run: |s, m| turns(s, m, Pairs::Halves),
    },
    Case {
        kernel: "attention",
        of: "",
        unit: "2⁻²⁴ of Σ p·\\|v\\|",
        bound: "2·(d + 4)·max Σ\\|q·k\\| + 2·n + 24",
        run: attentions,
    },
];

const POSITIONS: usize = 50;
const BLOCK: usize = 5;
const BLOCKS: usize = 7;

fn turns(stream: &Stream, m: &mut Measure, pairs: Pairs) {
    let mut rng = Rng(130);
    for (q_heads, kv, hd) in [(1, 1, 1), (3, 1, 8), (4, 2, 5), (9, 3, 32)] {
        for tokens in [0, 1, 3, 17] {
            let (heads, d) = (Heads { q: q_heads, kv, pairs }, 2 * hd);
            let width = (heads.q + 2 * heads.kv) * d;
            let qkv = rng.floats(tokens * width, 3.0);
            let angle = |i: usize| (i / hd) as f64 / 10000f64.powf((i % hd) as f64 / hd as f64);
            let (cos, sin): (Vec<f32>, Vec<f32>) =
                (0..POSITIONS * hd).map(|i| (angle(i).cos() as f32, angle(i).sin() as f32)).unzip();
            let positions: Vec<i32> = (0..tokens).map(|_| rng.below(POSITIONS) as i32).collect();
            let slots: Vec<i32> = rng.shuffled(BLOCK * BLOCKS)[..tokens].iter().map(|&s| s as i32).collect();

            // Coordinate i of a head of a token, turned, and the sum of magnitudes that it is made of.
            let turned = |t: usize, head: usize, i: usize| -> (f64, f64) {
                let (pair, second, a, b) = match pairs {
                    Pairs::Adjacent => (i / 2, i % 2 == 1, i / 2 * 2, i / 2 * 2 + 1),
                    Pairs::Halves => (i % hd, i >= hd, i % hd, i % hd + hd),
                };
                let x = |i: usize| f64::from(qkv[t * width + head * d + i]);
                let at = positions[t] as usize * hd + pair;
                let (cos, sin) = (f64::from(cos[at]), f64::from(sin[at]));
                let parts = if second { [x(a) * sin, x(b) * cos] } else { [x(a) * cos, -x(b) * sin] };
                (parts.iter().sum(), parts.iter().map(|p| p.abs()).sum())
            };
            let mut q = poisoned::<f32, _>([tokens, heads.q * d]);
            let mut k = poisoned::<f16, _>([BLOCKS, kv, d, BLOCK]);
            let mut v = poisoned::<f16, _>([BLOCKS, kv, BLOCK, d]);
            rope_and_cache::launch(
                &tensor([tokens, width], &qkv),
                &tensor([POSITIONS, hd], &cos),
                &tensor([POSITIONS, hd], &sin),
                &tensor([tokens], &positions),
                &tensor([tokens], &slots),
                &mut q,
                &mut k,
                &mut v,
            )
            .dims(hd)
            .cfg(heads)
            .grid([tokens, heads.q + 2 * kv])
            .run(stream)
            .unwrap();
            let what = format!("{tokens} tokens, {heads:?}, d = {d}");
            let (want, sizes): (Vec<f64>, Vec<f64>) =
                (0..tokens * heads.q * d).map(|i| turned(i / (heads.q * d), i / d % heads.q, i % d)).unzip();
            m.near(&format!("queries, {what}"), q.as_slice(), &want, |i| Allowed { unit: sizes[i] * F32, bound: 2.0 });

            // Of the cache: where each token's keys and values are; everything else stays poisoned.
            let (keys, values) = (k.as_slice(), v.as_slice());
            let (mut got, mut want, mut sizes) = (vec![], vec![], vec![]);
            let (mut v_want, mut left) = (vec![f16::from_bits(0xffff); values.len()], k.len());
            for (t, head, i) in (0..tokens).flat_map(|t| (0..kv * d).map(move |i| (t, i / d, i % d))) {
                let slot = slots[t] as usize;
                let base = slot / BLOCK * kv + head;
                let (key, size) = turned(t, heads.q + head, i);
                got.push(keys[(base * d + i) * BLOCK + slot % BLOCK].to_f32());
                want.push(key);
                sizes.push(size);
                left -= 1;
                let value = qkv[t * width + (heads.q + kv + head) * d + i];
                v_want[(base * BLOCK + slot % BLOCK) * d + i] = f16::from_f64(f64::from(value));
            }
            m.near(&format!("keys, {what}"), &got, &want, |i| Allowed {
                // Below the normal numbers of f16 its step is fixed.
                unit: sizes[i].max(6.2e-5) * F16,
                bound: 1.0 + 2.0 * F32 / F16,
            });
            let untouched = keys.iter().filter(|k| k.to_bits() == 0xffff).count();
            m.require(untouched == left, || format!("{what}: {untouched} keys are untouched, not {left}"));
            m.exact(&format!("values, {what}"), values, &v_want);
        }
    }
}

/// Weights are off relatively by what their scores are off: d roundings of Σ|q·k|, the product with the scale, the
/// difference to the maximum. Both the weighted sum and the sum that divides it are; each adds n values besides.
fn attentions(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(131);
    for (kv, group, d) in [(2, 1, 8), (1, 3, 64), (2, 4, 20)] {
        let shape = attention::Shape { kv, group, d, block: 8 };
        let case = attention::Case::random(shape, &attention::SEQUENCES, &mut rng);
        let (want, sizes, scores, lengths) = case.exact();
        for bt in [1, 8] {
            let got = case.run(stream, bt, usize::MAX, 2);
            m.near(&format!("{shape:?}, BT = {bt}"), &got, &want, |i| Allowed {
                unit: sizes[i] * F32,
                bound: 2.0 * (d as f64 + 4.0) * scores[i] + 2.0 * lengths[i] as f64 + 24.0,
            });
        }
    }
}
