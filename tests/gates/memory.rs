//! Kernels that memory limits, over tensors of 256 MB, against plain loops with the same reads and writes.

use tegula::prelude::*;
use tegula_kernels::{
    basic::{softmax, vector_add},
    norm::rms_norm,
};

use crate::Outcome;
use crate::clock::{median, thread_seconds};
use crate::peers;
use crate::report::Gate;

/// Elements of a row, and rows.
const N: usize = 4096;
const ROWS: usize = 16_384;
const ROUNDS: usize = 16;
const BOUND: f64 = 0.85;

/// All three, one thread each. The first round compiles and is not counted.
pub fn gates(device: &Device) -> Outcome<[Gate; 3]> {
    let len = N * ROWS;
    let mut x = Tensor::<f32>::zeros([ROWS, N])?;
    let mut weight = Tensor::<f32>::zeros([1, N])?;
    x.as_mut_slice()?.iter_mut().enumerate().for_each(|(i, x)| *x = (i * 7919 % 1021) as f32 * 0.01 - 5.0);
    weight.as_mut_slice()?.iter_mut().enumerate().for_each(|(i, w)| *w = 0.5 + i as f32 / N as f32);
    let mut y = Tensor::<f32>::zeros([ROWS, N])?;
    let (mut norms, mut softmaxes) = (vec![], vec![]);
    for _ in 0..=ROUNDS {
        // SAFETY (here and below): a machine that kernels run on has AVX2.
        let plain = thread_seconds(|| {
            unsafe { peers::scale(1.5, x.as_slice(), y.as_mut_slice()?) };
            Outcome::Ok(())
        })?;
        softmaxes.push((thread_seconds(|| softmax::launch(&x, &mut y).dims(N).grid(ROWS).run(device))?, plain));
        check(&x, &y, |row, i| {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exp = |x: f32| f64::from(x - max).exp();
            exp(row[i]) / row.iter().map(|x| exp(*x)).sum::<f64>()
        })?;
        let plain = thread_seconds(|| {
            unsafe { peers::scale(1.5, x.as_slice(), y.as_mut_slice()?) };
            Outcome::Ok(())
        })?;
        norms.push((
            thread_seconds(|| rms_norm::launch(&x, &weight, &mut y, 1e-5).dims(N).grid(ROWS).run(device))?,
            plain,
        ));
        check(&x, &y, |row, i| {
            let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / N as f64;
            f64::from(row[i]) / (mean + 1e-5).sqrt() * f64::from(weight.as_slice()[i])
        })?;
    }

    let (a, b) = (Tensor::<f32>::from_slice([len], x.as_slice())?, Tensor::<f32>::from_slice([len], y.as_slice())?);
    let mut c = Tensor::<f32>::zeros([len])?;
    let mut adds = vec![];
    for _ in 0..=ROUNDS {
        let plain = thread_seconds(|| {
            unsafe { peers::add(a.as_slice(), b.as_slice(), c.as_mut_slice()?) };
            Outcome::Ok(())
        })?;
        adds.push((thread_seconds(|| vector_add::launch(&a, &b, &mut c).dims(N).run(device))?, plain));
    }
    if (0..len).step_by(997).any(|i| c.as_slice()[i] != a.as_slice()[i] + b.as_slice()[i]) {
        return Err("vector add: a sum is wrong".into());
    }

    let gate = |name: &str, tensors: usize, samples: &[(f64, f64)]| {
        let samples = &samples[1..];
        let rate = |time: f64| (tensors * len * 4) as f64 * 1e-9 / time;
        let ours = median(samples.iter().map(|s| rate(s.0)));
        let plain = median(samples.iter().map(|s| rate(s.1)));
        Gate::ratio(name, (ours, plain), "GB/s", median(samples.iter().map(|s| s.1 / s.0)), BOUND)
    };
    Ok([
        gate("softmax, 256 MB / plain loop", 2, &softmaxes),
        gate("RMS norm, 256 MB / plain loop", 2, &norms),
        gate("vector add, 256 MB / plain loop", 3, &adds),
    ])
}

/// A few elements of a few rows of `y` against their definition in f64.
fn check(x: &Tensor<f32>, y: &Tensor<f32>, expected: impl Fn(&[f32], usize) -> f64) -> Outcome<()> {
    for row in [0, ROWS / 3, ROWS - 1] {
        let of = |t: &Tensor<f32>| t.as_slice()[row * N..][..N].to_vec();
        let (from, to) = (of(x), of(y));
        for i in [0, 1, N / 2 + 7, N - 1] {
            let (found, expected) = (f64::from(to[i]), expected(&from, i));
            if (found - expected).abs() > 1e-5 * expected.abs() + 1e-12 {
                return Err(format!("row {row}, column {i}: expected {expected}, found {found}").into());
            }
        }
    }
    Ok(())
}
