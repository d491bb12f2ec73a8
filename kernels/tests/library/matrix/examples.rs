//! The kernels of the examples, at sizes of the tests.

use super::{
    Case,
    measure::{Allowed, F32, Measure},
};
use crate::{sample, support::*};
use tegula::prelude::*;

macro_rules! examples { ($($name:ident $file:literal;)*) => {
    $(#[path = $file] #[allow(dead_code)] mod $name;)*
    /// Their names and sources.
    pub const SOURCES: &[(&str, &str)] = &[$((stringify!($name), include_str!($file))),*];
} }
examples! {
    vector_add "../../../examples/vector_add.rs";
    softmax "../../../examples/softmax.rs";
    matmul "../../../examples/matmul.rs";
    layer_norm "../../../examples/layer_norm.rs";
    dropout "../../../examples/dropout.rs";
    flash_attention "../../../examples/flash_attention.rs";
    histogram "../../../examples/histogram.rs";
}

pub const CASES: &[Case] = &[
    Case { kernel: "vector_add", of: "example", unit: "", bound: "", run: adds },
    Case { kernel: "softmax", of: "example", unit: "2⁻²⁴ of the value", bound: "n + 48", run: softmaxes },
    Case { kernel: "matmul", of: "example", unit: "2⁻²⁴ of Σ\\|a·b\\|", bound: "k + 1", run: products },
    Case {
        kernel: "layer_norm",
        of: "example",
        unit: "2⁻²⁴ of (\\|x\\| + mean\\|x\\|)/σ·\\|w\\| + \\|b\\|",
        bound: "2·n + 12",
        run: layer_norms,
    },
    Case { kernel: "dropout", of: "example", unit: "", bound: "", run: dropouts },
    Case {
        kernel: "flash_attention",
        of: "example",
        unit: "2⁻²⁴ of Σ p·\\|v\\|",
        bound: "2·(d + 4)·max Σ\\|q·k\\| + 2·n + 24",
        run: attentions,
    },
    Case { kernel: "histogram", of: "example", unit: "", bound: "", run: histograms },
];

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn adds(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(140);
    for n in [0, 1, 127, 128, 129, 331] {
        let (a, b) = (rng.floats(n, 3.0), rng.floats(n, 3.0));
        let mut c = poisoned::<f32, _>([n]);
        vector_add::vector_add::launch(&tensor([n], &a), &tensor([n], &b), &mut c).dims(128).run(stream).unwrap();
        let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| (f64::from(*a) + f64::from(*b)) as f32).collect();
        m.exact(&format!("{n}"), c.as_slice(), &want);
    }
}

fn softmaxes(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(141);
    for (rows, n) in [(0, 5), (1, 1), (3, 97), (5, 128)] {
        let x = rng.floats(rows * n, 10.0);
        let want: Vec<f64> = wide(&x)
            .chunks(n)
            .flat_map(|x| {
                let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let e: Vec<f64> = x.iter().map(|x| (x - largest).exp()).collect();
                let sum: f64 = e.iter().sum();
                e.into_iter().map(move |e| e / sum)
            })
            .collect();
        let mut y = poisoned::<f32, _>([rows, n]);
        softmax::softmax::launch(&tensor([rows, n], &x), &mut y).dims(128).grid(rows).run(stream).unwrap();
        m.near(&format!("{rows} × {n}"), y.as_slice(), &want, |i| Allowed {
            unit: want[i] * F32,
            bound: n as f64 + 48.0,
        });
    }
}

fn products(stream: &Stream, measure: &mut Measure) {
    let mut rng = Rng(142);
    for (m, n, k) in [(1, 1, 1), (33, 31, 17), (3, 65, 33), (0, 5, 3)] {
        let (a, b) = (rng.floats(m * k, 2.0), rng.floats(k * n, 2.0));
        let (x, y) = (wide(&a), wide(&b));
        let sums = |f: fn(f64) -> f64| -> Vec<f64> {
            (0..m * n).map(|i| (0..k).map(|q| f(x[i / n * k + q] * y[q * n + i % n])).sum()).collect()
        };
        let (want, sizes) = (sums(|p| p), sums(f64::abs));
        let mut c = poisoned::<f32, _>([m, n]);
        matmul::matmul::launch(&tensor([m, k], &a), &tensor([k, n], &b), &mut c).dims(32, 32, 16).run(stream).unwrap();
        measure.near(&format!("{m} × {n} × {k}"), c.as_slice(), &want, |i| Allowed {
            unit: sizes[i] * F32,
            bound: k as f64 + 1.0,
        });
    }
}

/// Sums of n values, of which the second is of squares of differences; values around 2, so that the mean matters.
fn layer_norms(stream: &Stream, m: &mut Measure) {
    let (mut rng, eps) = (Rng(143), 1e-5);
    for (rows, n) in [(0, 7), (1, 2), (3, 97), (7, 127), (2, 128)] {
        let x: Vec<f32> = rng.floats(rows * n, 1.0).iter().map(|x| x + 2.0).collect();
        let (weight, bias) = (rng.floats(n, 2.0), rng.floats(n, 1.0));
        let (mut want, mut sizes) = (vec![], vec![]);
        for x in wide(&x).chunks(n) {
            let mean = x.iter().sum::<f64>() / n as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
            let deviation = (variance + f64::from(eps)).sqrt();
            let size = x.iter().map(|x| x.abs()).sum::<f64>() / n as f64;
            for (x, (w, b)) in x.iter().zip(wide(&weight).iter().zip(wide(&bias))) {
                want.push((x - mean) / deviation * w + b);
                sizes.push((x.abs() + size) / deviation * w.abs() + b.abs());
            }
        }
        let mut y = poisoned::<f32, _>([rows, n]);
        layer_norm::layer_norm::launch(&tensor([rows, n], &x), &tensor([n], &weight), &tensor([n], &bias), &mut y, eps)
            .dims(128)
            .grid(rows)
            .run(stream)
            .unwrap();
        m.near(&format!("{rows} × {n}"), y.as_slice(), &want, |i| Allowed {
            unit: sizes[i] * F32,
            bound: 2.0 * n as f64 + 12.0,
        });
    }
}

fn dropouts(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(144);
    for (n, p) in [(0, 0.5f32), (1, 0.0), (127, 0.3), (129, 0.75), (331, 1.0 / 3.0)] {
        let (x, seed) = (rng.floats(n, 3.0), rng.bits());
        let mut y = poisoned::<f32, _>([n]);
        dropout::dropout::launch(&tensor([n], &x), &mut y, p, seed).dims(128).run(stream).unwrap();
        // Uniform numbers in 24 bits; 1 − p is exact in float64 and rounded once, and so is the quotient.
        let kept = |i: usize| f64::from(sample::philox(seed, i as u64) >> 8) / 16_777_216.0 >= f64::from(p);
        let rest = (1.0 - f64::from(p)) as f32;
        let quotient = |x: f32| (f64::from(x) / f64::from(rest)) as f32;
        let want: Vec<f32> = x.iter().enumerate().map(|(i, x)| if kept(i) { quotient(*x) } else { 0.0 }).collect();
        m.exact(&format!("{n}, p = {p}"), y.as_slice(), &want);
    }
}

fn attentions(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(145);
    for (heads, n, d) in [(1, 1, 16), (2, 31, 16), (3, 37, 16)] {
        let (q, k, v) =
            (rng.floats(heads * n * d, 2.0), rng.floats(heads * n * d, 2.0), rng.floats(heads * n * d, 5.0));
        let scale = 0.25f32;
        let (x, y, z) = (wide(&q), wide(&k), wide(&v));
        let (mut want, mut sizes, mut scores) = (vec![], vec![], vec![]);
        for (h, i) in (0..heads).flat_map(|h| (0..n).map(move |i| (h, i))) {
            let row = |t: &[f64], i: usize| t[(h * n + i) * d..][..d].to_vec();
            let products = |j: usize| row(&x, i).into_iter().zip(row(&y, j)).map(|(q, k)| q * k * f64::from(scale));
            let p: Vec<f64> = (0..=i).map(|j| products(j).sum::<f64>().exp()).collect();
            let sum: f64 = p.iter().sum();
            let most = (0..=i).map(|j| products(j).map(f64::abs).sum::<f64>()).fold(0.0, f64::max);
            for c in 0..d {
                let values = || (0..=i).map(|j| p[j] / sum * row(&z, j)[c]);
                want.push(values().sum::<f64>());
                sizes.push(values().map(f64::abs).sum::<f64>());
                scores.push(most);
            }
        }
        let mut o = poisoned::<f32, _>([heads, n, d]);
        let [q, k, v] = [q, k, v].map(|t| tensor([heads, n, d], &t));
        flash_attention::flash::launch(&q, &k, &v, &mut o, scale)
            .dims(16, 32, d)
            .grid([n.div_ceil(16), heads])
            .run(stream)
            .unwrap();
        m.near(&format!("{heads} heads, {n} tokens"), o.as_slice(), &want, |i| Allowed {
            unit: sizes[i] * F32,
            bound: 2.0 * (d as f64 + 4.0) * scores[i] + 2.0 * n as f64 + 24.0,
        });
    }
}

fn histograms(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(146);
    for n in [0, 1, 127, 129, 1009] {
        let text: Vec<u8> = (0..n).map(|_| rng.bits() as u8).collect();
        let kinds: Vec<i32> = (0..256).map(|_| rng.below(5) as i32).collect();
        // Counts are added to what is there.
        let before = [3, -1, 0, 1000, i32::MAX];
        let mut counts = tensor([5], &before);
        histogram::histogram::launch(&tensor([n], &text), &tensor([256], &kinds), &mut counts)
            .dims(128)
            .grid(n.div_ceil(128))
            .run(stream)
            .unwrap();
        let mut want = before;
        text.iter().for_each(|&b| want[kinds[b as usize] as usize] = want[kinds[b as usize] as usize].wrapping_add(1));
        m.exact(&format!("{n}"), counts.as_slice(), &want);
    }
}
