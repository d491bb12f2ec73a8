//! RMS norm and SwiGLU, plain and quantised.
//!
//! Bounds, with u = 2^-24: a sum of n squares in any order is off by at most (n + 1)·u relative to itself, its root by
//! half of that, and a handful of roundings follow. SwiGLU: exp is off by a few u.

use crate::{quantise, support::*};
use tegula::prelude::*;
use tegula_kernels::{
    activation::{swiglu, swiglu_quantise},
    norm::{rms_norm, rms_norm_quantise, rms_norm_rows},
    quantise::Bits,
};

fn rms(x: &[f32], weight: &[f32], eps: f32) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (mean + f64::from(eps)).sqrt();
    x.iter().zip(weight).map(|(x, w)| f64::from(*x) * scale * f64::from(*w)).collect()
}

fn rms_bound(n: usize) -> f64 {
    (n as f64 / 2.0 + 8.0) * U
}

#[test]
fn rms_norm_of_rows() {
    let mut rng = Rng(40);
    for n in [1, 5, 96, 577] {
        let weight = rng.floats(n, 2.0);
        for rows in [1, 2, 3, 7, 17] {
            // Rows of very different sizes; eps decides the smallest.
            let x: Vec<f32> = (0..rows).flat_map(|r| rng.floats(n, 10f32.powi(3 - r as i32 % 7))).collect();
            let eps = 1e-5;
            let want: Vec<f64> = x.chunks(n).flat_map(|x| rms(x, &weight, eps)).collect();
            let (x, w) = (tensor([rows, n], &x), tensor([1, n], &weight));
            for stream in devices() {
                let mut y = Tensor::<f32>::poisoned([rows, n]).unwrap();
                rms_norm::launch(&x, &w, &mut y, eps).dims(n).grid(rows).run(stream).unwrap();
                close(&format!("{rows} × {n}"), y.as_slice(), &want, |_, w| w.abs() * rms_bound(n));
            }
        }
    }
}

#[test]
fn rms_norm_of_chosen_rows_has_the_bits_of_all_rows() {
    let mut rng = Rng(41);
    let (rows, n) = (17, 95);
    let (x, w) = (tensor([rows, n], &rng.floats(rows * n, 3.0)), tensor([1, n], &rng.floats(n, 1.0)));
    let chosen = [16, 0, 3, 3, 9];
    for stream in devices() {
        let (mut all, mut some) =
            (Tensor::<f32>::poisoned([rows, n]).unwrap(), Tensor::<f32>::poisoned([chosen.len(), n]).unwrap());
        rms_norm::launch(&x, &w, &mut all, 1e-6).dims(n).grid(rows).run(stream).unwrap();
        rms_norm_rows::launch(&x, &w, &tensor([chosen.len()], &chosen), &mut some, 1e-6)
            .dims(n)
            .grid(chosen.len())
            .run(stream)
            .unwrap();
        for (got, &row) in some.as_slice().chunks(n).zip(&chosen) {
            same_bits("row", got, &all.as_slice()[row as usize * n..][..n]);
        }
    }
}

/// Quantised outputs for `rows` rows of `groups` groups, poisoned.
fn outputs(rows: usize, groups: usize, bits: Bits) -> (Tensor<i8>, Tensor<f32>, Tensor<i32>) {
    let rows = rows * bits.rows();
    (
        Tensor::poisoned([rows, 32 * groups]).unwrap(),
        Tensor::poisoned([rows, groups]).unwrap(),
        Tensor::poisoned([rows, groups]).unwrap(),
    )
}

/// One pass gives the bits of two: the quantisation of what the plain kernel stored.
#[track_caller]
fn quantised_bits(plain: &Tensor<f32>, bits: Bits, got: &(Tensor<i8>, Tensor<f32>, Tensor<i32>)) {
    let want = quantise::reference_of(plain.as_slice(), plain.shape()[1], bits);
    same_bits("codes", got.0.as_slice(), &want.0);
    same_bits("scales", got.1.as_slice(), &want.1);
    same_bits("sums", got.2.as_slice(), &want.2);
}

#[test]
fn rms_norm_quantised_in_one_pass() {
    let mut rng = Rng(42);
    for (rows, groups) in [(1, 1), (3, 7), (17, 5)] {
        let n = 32 * groups;
        let (x, w) = (tensor([rows, n], &rng.floats(rows * n, 2.0)), tensor([1, n], &rng.floats(n, 1.0)));
        for stream in devices() {
            let mut plain = Tensor::<f32>::poisoned([rows, n]).unwrap();
            rms_norm::launch(&x, &w, &mut plain, 1e-5).dims(n).grid(rows).run(stream).unwrap();
            for bits in [Bits::Eight, Bits::Sixteen] {
                let mut out = outputs(rows, groups, bits);
                rms_norm_quantise::launch(&x, &w, &mut out.0, &mut out.1, &mut out.2, 1e-5)
                    .dims(groups)
                    .cfg(bits)
                    .grid(rows)
                    .run(stream)
                    .unwrap();
                quantised_bits(&plain, bits, &out);
            }
        }
    }
}

#[test]
fn swiglu_of_rows() {
    let mut rng = Rng(43);
    for n in [1, 31, 96, 545] {
        for rows in [1, 2, 3, 7, 17] {
            let mut x = rng.floats(rows * 2 * n, 12.0);
            x[0] = -100.0;
            x[n * 2 * (rows - 1)] = 100.0;
            let want: Vec<f64> = (0..rows * n)
                .map(|i| {
                    let (row, column) = (i / n * 2 * n, i % n);
                    let (gate, up) = (f64::from(x[row + column]), f64::from(x[row + n + column]));
                    gate / (1.0 + (-gate).exp()) * up
                })
                .collect();
            let x = tensor([rows, 2 * n], &x);
            for stream in devices() {
                let mut y = Tensor::<f32>::poisoned([rows, n]).unwrap();
                swiglu::launch(&x, &mut y).dims(n).grid(rows).run(stream).unwrap();
                // e^100 is no f32: there the result is 0, 1e-37 from the right one.
                close(&format!("{rows} × {n}"), y.as_slice(), &want, |_, w| w.abs() * 8.0 * U + 1e-37);
            }
        }
    }
}

#[test]
fn swiglu_quantised_in_one_pass() {
    let mut rng = Rng(44);
    for (rows, groups) in [(1, 1), (3, 7), (17, 5)] {
        let n = 32 * groups;
        let x = tensor([rows, 2 * n], &rng.floats(rows * 2 * n, 4.0));
        for stream in devices() {
            let mut plain = Tensor::<f32>::poisoned([rows, n]).unwrap();
            swiglu::launch(&x, &mut plain).dims(n).grid(rows).run(stream).unwrap();
            for bits in [Bits::Eight, Bits::Sixteen] {
                let mut out = outputs(rows, groups, bits);
                swiglu_quantise::launch(&x, &mut out.0, &mut out.1, &mut out.2)
                    .dims(groups)
                    .cfg(bits)
                    .grid(rows)
                    .run(stream)
                    .unwrap();
                quantised_bits(&plain, bits, &out);
            }
        }
    }
}
