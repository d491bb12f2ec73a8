//! Packed weights: products with them, embeddings, packing.

use super::{
    Case,
    gguf::{self, Weight},
    measure::{Allowed, F32, Measure},
};
use crate::support::*;
use tegula::{
    ir::{Quant, layout::Layout},
    prelude::*,
};
use tegula_kernels::{
    embed::embed,
    linear::{Epilogue, Quantised, linear, linear_quantised},
    pack::pack_as,
    quantise::Bits,
};

const PRODUCT: &str = "2⁻²⁴ of Σ\\|x·w\\|";
const WEIGHT: &str = "2⁻²⁴ of the weight";

pub const CASES: &[Case] = &[
    Case { kernel: "linear", of: "all formats", unit: PRODUCT, bound: "k + 4", run: products },
    Case {
        kernel: "linear_quantised",
        of: "8 bits, all formats",
        unit: PRODUCT,
        bound: "k/16 + 4",
        run: |s, m| quantised_products(s, m, Bits::Eight),
    },
    Case {
        kernel: "linear_quantised",
        of: "16 bits, all formats",
        unit: PRODUCT,
        bound: "k/16 + 6",
        run: |s, m| quantised_products(s, m, Bits::Sixteen),
    },
    Case { kernel: "embed", of: "all formats", unit: WEIGHT, bound: "2", run: embeddings },
    Case { kernel: "pack_blocks", of: "all formats", unit: WEIGHT, bound: "2", run: |s, m| packed(s, m, false) },
    Case { kernel: "pack_floats", of: "all formats", unit: WEIGHT, bound: "2", run: |s, m| packed(s, m, true) },
];

/// All weights of a matrix, the n-th column's K after the other.
fn columns(w: &Weights) -> Vec<Weight> {
    let bytes = w.k / w.quant.block() * w.quant.block_bytes();
    let column = |n: usize| (0..w.k).map(move |k| gguf::weight(w.quant, &w.gguf[n * bytes..][..bytes], k));
    (0..w.n).flat_map(column).collect()
}

/// Σ x·w and Σ |x·w| for each row of `x` and column of the weights, and what was there before.
fn reference(x: &[f64], w: &[Weight], k: usize, before: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let outputs = x.chunks(k).flat_map(|x| w.chunks(k).map(move |w| (x, w)));
    let sums = outputs.map(|(x, w)| {
        let products = || x.iter().zip(w);
        (products().map(|(x, w)| x * w.value()).sum::<f64>(), products().map(|(x, w)| x.abs() * w.size()).sum::<f64>())
    });
    sums.enumerate()
        .map(|(i, (sum, size))| {
            let before = before.get(i).map_or(0.0, |b| f64::from(*b));
            (before + sum, before.abs() + size)
        })
        .unzip()
}

/// Rows of activations.
const ROWS: [usize; 5] = [0, 1, 2, 7, 9];

fn held(m: usize, n: usize, residual: bool, rng: &mut Rng) -> (Vec<f32>, Tensor<f32>) {
    if !residual {
        return (vec![], poisoned([m, n]));
    }
    let held = rng.floats(m * n, 3.0);
    let y = tensor([m, n], &held);
    (held, y)
}

fn depth(quant: Quant) -> usize {
    if quant.block() == 256 { 256 } else { 64 }
}

const N: usize = 37;

fn products(stream: &Stream, measure: &mut Measure) {
    let mut rng = Rng(120);
    for (i, &quant) in Quant::ALL.iter().enumerate() {
        // For every other format the product is added to what is there.
        let residual = i % 2 == 1;
        let w = Weights::random(quant, odd_k(quant, 160), N, &mut rng);
        let (weights, packed, k) = (columns(&w), w.packed(stream), w.k);
        for m in ROWS {
            let x = rng.floats(m * k, 2.0);
            let (before, mut y) = held(m, N, residual, &mut rng);
            linear::launch(&tensor([m, k], &x), &packed, &mut y)
                .dims(8, 32, depth(quant))
                .cfg(Epilogue { residual })
                .grid([N.div_ceil(32), m.div_ceil(8)])
                .run(stream)
                .unwrap();
            let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
            let (want, sizes) = reference(&x, &weights, k, &before);
            measure.near(&format!("{quant}, {m} rows"), y.as_slice(), &want, |i| Allowed {
                unit: sizes[i] * F32,
                bound: k as f64 + 4.0,
            });
        }
    }
}

fn quantised_products(stream: &Stream, measure: &mut Measure, bits: Bits) {
    let mut rng = Rng(121);
    for (i, &quant) in Quant::ALL.iter().filter(|q| !q.is_float()).enumerate() {
        let residual = i % 2 == 1;
        let w = Weights::random(quant, odd_k(quant, 160), N, &mut rng);
        let (weights, packed, k) = (columns(&w), w.packed(stream), w.k);
        for m in ROWS {
            // Codes over their whole range, −128 too, which a quantiser does not make.
            let (r, groups) = (m * bits.rows(), k / 32);
            let codes: Vec<i8> = (0..r * k).map(|_| rng.bits() as i8).collect();
            let scales = rng.floats(r * groups, 0.05);
            let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|c| i32::from(*c)).sum()).collect();
            let (before, mut y) = held(m, N, residual, &mut rng);
            linear_quantised::launch(
                &tensor([r, k], &codes),
                &tensor([r, groups], &scales),
                &tensor([r, groups], &sums),
                &packed,
                &mut y,
            )
            .dims(8, 32, depth(quant), depth(quant) / 32)
            .cfg(Quantised { bits, epilogue: Epilogue { residual } })
            .grid([N.div_ceil(32), m.div_ceil(8)])
            .run(stream)
            .unwrap();
            // A row's values are those of its rows of codes, whose magnitudes add up.
            let value = |i: usize| f64::from(codes[i]) * f64::from(scales[i / 32]);
            let each: Vec<f64> = (0..r * k).map(value).collect();
            let (sum, size) = reference(&each, &weights, k, &[]);
            let row = |i: usize, of: &[f64]| -> f64 {
                (0..bits.rows()).map(|b| of[(i / N * bits.rows() + b) * N + i % N]).sum()
            };
            let before = |i: usize| before.get(i).map_or(0.0, |b| f64::from(*b));
            let want: Vec<f64> = (0..m * N).map(|i| before(i) + row(i, &sum)).collect();
            // Two roundings a group, of scales and of sums; for a minimum as many.
            measure.near(&format!("{quant}, {m} rows"), y.as_slice(), &want, |i| Allowed {
                unit: (before(i).abs() + row(i, &size)) * F32,
                bound: 2.0 * groups as f64 + 2.0 + 2.0 * bits.rows() as f64,
            });
        }
    }
}

fn weight_bound(w: &[Weight]) -> impl Fn(usize) -> Allowed {
    move |i| Allowed { unit: w[i].size().max(1e-30) * F32, bound: 2.0 }
}

fn embeddings(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(122);
    for &quant in Quant::ALL {
        let w = Weights::random(quant, odd_k(quant, 97), N, &mut rng);
        let (weights, packed, h) = (columns(&w), w.packed(stream), w.k);
        for rows in [0, 1, 7] {
            let tokens: Vec<i32> = (0..rows).map(|i| if i == 3 { N as i32 - 1 } else { rng.below(N) as i32 }).collect();
            let rows_of = tokens.iter().flat_map(|&t| weights[t as usize * h..][..h].iter().copied());
            let wanted: Vec<Weight> = rows_of.collect();
            let mut y = poisoned::<f32, _>([rows, h]);
            embed::launch(&packed, &tensor([rows], &tokens), &mut y).dims(h).grid(rows).run(stream).unwrap();
            let want: Vec<f64> = wanted.iter().map(|w| w.value()).collect();
            m.near(&format!("{quant}, {rows} rows"), y.as_slice(), &want, weight_bound(&wanted));
        }
    }
}

/// Packs into panels on every executor, whatever its own layout is, and reads all weights back. The bytes are compared
/// with those of a reference in `pack.rs`.
fn packed(stream: &Stream, m: &mut Measure, float: bool) {
    let mut rng = Rng(123);
    for &quant in Quant::ALL.iter().filter(|q| q.is_float() == float) {
        for (k, n) in [(32, 1), (97, 15), (160, 16), (97, 17), (800, 37)] {
            let w = Weights::random(quant, odd_k(quant, k), n, &mut rng);
            let wanted = columns(&w);
            let out = pack_as(Layout::Panel16, stream, quant, &w.gguf, w.k, n).unwrap();
            let got: Vec<f32> =
                (0..n).flat_map(|n| (0..w.k).map(move |k| (k, n))).map(|(k, n)| out.decode(k, n)).collect();
            let want: Vec<f64> = wanted.iter().map(|w| w.value()).collect();
            m.near(&format!("{quant}, {} × {n}", w.k), &got, &want, weight_bound(&wanted));
        }
    }
}
