//! Rotary embedding and the cache: exact, and nothing else in the cache is touched.

use crate::support::*;
use half::f16;
use tegula::prelude::*;
use tegula_kernels::rope::{Heads, Pairs, rope_and_cache};

const POSITIONS: usize = 50;
const BLOCK: usize = 5;
const BLOCKS: usize = 7;

/// The head's coordinates that turn together, and where they are.
fn turned(x: &[f32], cos: &[f32], sin: &[f32], pairs: Pairs) -> Vec<f32> {
    let half = x.len() / 2;
    let mut y = vec![0.0; x.len()];
    for i in 0..half {
        let (a, b) = match pairs {
            Pairs::Adjacent => (2 * i, 2 * i + 1),
            Pairs::Halves => (i, i + half),
        };
        y[a] = x[a] * cos[i] - x[b] * sin[i];
        y[b] = x[a] * sin[i] + x[b] * cos[i];
    }
    y
}

fn check(tokens: usize, heads: Heads, hd: usize, rng: &mut Rng) {
    let d = 2 * hd;
    let width = (heads.q + 2 * heads.kv) * d;
    let qkv = rng.floats(tokens * width, 3.0);
    let angles: Vec<f64> =
        (0..POSITIONS * hd).map(|i| (i / hd) as f64 / 10000f64.powf((i % hd) as f64 / hd as f64)).collect();
    let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
    let positions: Vec<i32> = (0..tokens).map(|_| rng.below(POSITIONS) as i32).collect();
    let mut slots: Vec<i32> = rng.shuffled(BLOCK * BLOCKS)[..tokens].iter().map(|&s| s as i32).collect();
    if tokens > 2 {
        slots[1] = -1; // not stored
    }

    // What is not written stays as poisoned: all bits set.
    let untouched = f16::from_bits(0xffff);
    let mut q_want = vec![f32::NAN; tokens * heads.q * d];
    let (mut k_want, mut v_want) =
        (vec![untouched; BLOCKS * heads.kv * d * BLOCK], vec![untouched; BLOCKS * heads.kv * BLOCK * d]);
    for t in 0..tokens {
        let at = positions[t] as usize * hd;
        let (cos, sin) = (&cos[at..at + hd], &sin[at..at + hd]);
        let head = |h: usize| &qkv[t * width + h * d..][..d];
        for h in 0..heads.q {
            q_want[(t * heads.q + h) * d..][..d].copy_from_slice(&turned(head(h), cos, sin, heads.pairs));
        }
        let Ok(slot) = usize::try_from(slots[t]) else { continue };
        for h in 0..heads.kv {
            let key = turned(head(heads.q + h), cos, sin, heads.pairs);
            let value = head(heads.q + heads.kv + h);
            let base = slot / BLOCK * heads.kv + h;
            for i in 0..d {
                k_want[(base * d + i) * BLOCK + slot % BLOCK] = f16::from_f32(key[i]);
                v_want[(base * BLOCK + slot % BLOCK) * d + i] = f16::from_f32(value[i]);
            }
        }
    }
    for stream in devices() {
        let mut q = Tensor::<f32>::poisoned([tokens, heads.q * d]).unwrap();
        let mut k = Tensor::<f16>::poisoned([BLOCKS, heads.kv, d, BLOCK]).unwrap();
        let mut v = Tensor::<f16>::poisoned([BLOCKS, heads.kv, BLOCK, d]).unwrap();
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
        .grid([tokens, heads.q + 2 * heads.kv])
        .run(stream)
        .unwrap();
        let what = format!("{tokens} tokens, {heads:?}, d = {d}, {}", stream.device().name());
        same_bits(&format!("queries, {what}"), q.as_slice(), &q_want);
        same_bits(&format!("keys, {what}"), k.as_slice(), &k_want);
        same_bits(&format!("values, {what}"), v.as_slice(), &v_want);
    }
}

#[test]
fn turns_and_stores() {
    let mut rng = Rng(50);
    for pairs in [Pairs::Adjacent, Pairs::Halves] {
        for (q, kv, hd) in [(1, 1, 1), (3, 1, 8), (4, 2, 5), (9, 3, 32)] {
            for tokens in [1, 2, 3, 7, 17] {
                check(tokens, Heads { q, kv, pairs }, hd, &mut rng);
            }
        }
    }
}

/// A turn keeps lengths, and turns by the angle: position 0 changes nothing.
#[test]
fn position_zero_is_the_identity_in_the_reference_too() {
    let x = Rng(51).floats(8, 1.0);
    for pairs in [Pairs::Adjacent, Pairs::Halves] {
        assert_eq!(turned(&x, &[1.0; 4], &[0.0; 4], pairs), x);
        let y = turned(&x, &[0.0; 4], &[1.0; 4], pairs);
        let (a, b) = if pairs == Pairs::Adjacent { (0, 1) } else { (0, 4) };
        assert_eq!((y[a], y[b]), (-x[b], x[a]));
    }
}
