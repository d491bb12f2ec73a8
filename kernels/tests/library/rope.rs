//! Rotary embedding and the cache: exact, finite, and nothing else in the cache is touched.

use crate::support::*;
use half::f16;
use tegula::prelude::*;
use tegula_kernels::{
    attention::{Order, attention},
    rope::{Heads, Pairs, rope_and_cache},
};

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

/// What the cache keeps of the last of four tokens whose key and value are these, and what attention then gives for the
/// others; all four are one item of work.
fn with_last_token(key: [f32; 8], value: [f32; 8], stream: &Stream) -> (Vec<f16>, Vec<f16>, Vec<f32>) {
    const D: usize = 8;
    const TOKENS: usize = 4;
    let mut qkv = Rng(52).floats(TOKENS * 3 * D, 2.0);
    qkv[(TOKENS - 1) * 3 * D + D..].copy_from_slice(&[key, value].concat());
    // No turn: keys are what was put in.
    let (cos, sin) = (vec![1.0; TOKENS * D / 2], vec![0.0; TOKENS * D / 2]);
    let tokens = [0, 1, 2, 3];
    let mut q = Tensor::<f32>::poisoned([TOKENS, D]).unwrap();
    let mut k = Tensor::<f16>::poisoned([1, 1, D, TOKENS]).unwrap();
    let mut v = Tensor::<f16>::poisoned([1, 1, TOKENS, D]).unwrap();
    rope_and_cache::launch(
        &tensor([TOKENS, 3 * D], &qkv),
        &tensor([TOKENS, D / 2], &cos),
        &tensor([TOKENS, D / 2], &sin),
        &tensor([TOKENS], &tokens),
        &tensor([TOKENS], &tokens),
        &mut q,
        &mut k,
        &mut v,
    )
    .dims(D / 2)
    .cfg(Heads { q: 1, kv: 1, pairs: Pairs::Adjacent })
    .grid([TOKENS, 3])
    .run(stream)
    .unwrap();
    let mut out = Tensor::<f32>::poisoned([TOKENS, D]).unwrap();
    attention::launch(&q, &k, &v, &tensor([1, 1], &[0]), &tensor([1, 4], &[0, TOKENS as i32, 0, 0]), &mut out, 0.5)
        .dims(TOKENS, 1, D, TOKENS)
        .cfg(Order { blocks_per_cut: 1 })
        .grid([1, 1])
        .run(stream)
        .unwrap();
    let key = (0..D).map(|i| k.as_slice()[i * TOKENS + TOKENS - 1]).collect();
    let value = v.as_slice()[(TOKENS - 1) * D..].to_vec();
    (key, value, out.as_slice()[..(TOKENS - 1) * D].to_vec())
}

/// Keys and values past the range of f16 are kept finite, so no row that must not see them becomes NaN.
#[test]
fn huge_keys_and_values_disturb_no_earlier_row() {
    // 65504 is the largest f16; from 65520 on the nearest value would be infinite.
    let huge = [65504.0, -65519.0, 65520.0, -1e6, f32::MAX, f32::MIN, 1e20, 1.0];
    let infinite = huge.map(|x| if x == 1e20 { f32::INFINITY } else { x });
    let want = [f16::MAX, f16::MIN, f16::MAX, f16::MIN, f16::MAX, f16::MIN, f16::MAX, f16::ONE];
    let plain = [0.5, -0.25, 1.5, -3.0, 0.125, 2.0, -1.0, 0.75];
    for stream in devices() {
        let name = stream.device().name().to_string();
        let (key, value, rows) = with_last_token(huge, infinite, stream);
        same_bits(&format!("keys, {name}"), &key, &want);
        same_bits(&format!("values, {name}"), &value, &want);
        let (_, _, ordinary) = with_last_token(plain, plain, stream);
        assert!(ordinary.iter().all(|x| x.is_finite()));
        same_bits(&format!("earlier rows, {name}"), &rows, &ordinary);

        let (key, value, _) = with_last_token([f32::NAN; 8], [f32::NAN; 8], stream);
        assert!(key.iter().chain(&value).all(|x| x.is_nan()), "{name}: {key:?} {value:?}");
    }
}
