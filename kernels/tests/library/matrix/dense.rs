//! Vector add, softmax, matrix product.

use super::{
    Case,
    measure::{Allowed, BF16, F16, F32, Measure},
};
use crate::support::*;
use half::{bf16, f16};
use tegula::prelude::*;
use tegula_kernels::basic::{matmul, softmax, vector_add};

pub const CASES: &[Case] = &[
    Case { kernel: "vector_add", of: "f32", unit: "", bound: "", run: |s, m| adds::<f32>(s, m, |x| x as f32) },
    Case { kernel: "vector_add", of: "f16", unit: "", bound: "", run: |s, m| adds::<f16>(s, m, f16::from_f64) },
    Case { kernel: "vector_add", of: "bf16", unit: "", bound: "", run: |s, m| adds::<bf16>(s, m, bf16::from_f64) },
    Case {
        kernel: "softmax",
        of: "f32",
        unit: "2⁻²⁴ of the value",
        bound: "n + 48",
        run: |s, m| softmaxes::<f32>(s, m, |x| x as f32, F32),
    },
    Case {
        kernel: "softmax",
        of: "f16",
        unit: "2⁻¹¹ of the value",
        bound: "1 + (n + 48)·2⁻¹³",
        run: |s, m| softmaxes::<f16>(s, m, f16::from_f64, F16),
    },
    Case {
        kernel: "softmax",
        of: "bf16",
        unit: "2⁻⁸ of the value",
        bound: "1 + (n + 48)·2⁻¹⁶",
        run: |s, m| softmaxes::<bf16>(s, m, bf16::from_f64, BF16),
    },
    Case {
        kernel: "matmul",
        of: "f32",
        unit: "2⁻²⁴ of Σ\\|a·b\\|",
        bound: "k + 1",
        run: |s, m| products::<f32>(s, m, |x| x as f32, F32),
    },
    Case {
        kernel: "matmul",
        of: "f16",
        unit: "2⁻¹¹ of Σ\\|a·b\\|",
        bound: "1 + (k + 1)·2⁻¹³",
        run: |s, m| products::<f16>(s, m, f16::from_f64, F16),
    },
    Case {
        kernel: "matmul",
        of: "bf16",
        unit: "2⁻⁸ of Σ\\|a·b\\|",
        bound: "1 + (k + 1)·2⁻¹⁶",
        run: |s, m| products::<bf16>(s, m, bf16::from_f64, BF16),
    },
];

/// An element type with what the references need of it.
trait Number: Float {
    fn wide(self) -> f64;
}
impl Number for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
}
impl Number for f16 {
    fn wide(self) -> f64 {
        self.to_f64()
    }
}
impl Number for bf16 {
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

/// Random values of the type, and the same in float64.
fn random<T: Number>(n: usize, size: f32, rng: &mut Rng, of: fn(f64) -> T) -> (Vec<T>, Vec<f64>) {
    (0..n)
        .map(|_| {
            let x = of(f64::from(rng.float() * size));
            (x, x.wide())
        })
        .unzip()
}

fn single<T: Number>(values: &[T]) -> Vec<f32> {
    values.iter().map(|x| x.wide() as f32).collect()
}

/// What a computation in f32 may be off by when its result is rounded to a type with this unit.
fn rounded(unit: f64, in_f32: f64) -> f64 {
    if unit == F32 { in_f32 } else { 1.0 + in_f32 * F32 / unit }
}

/// A sum of two numbers of up to 24 bits and near sizes is exact in float64, hence rounded once.
fn adds<T: Number>(stream: &Stream, m: &mut Measure, of: fn(f64) -> T) {
    let mut rng = Rng(101);
    for n in [0, 1, 2, 63, 64, 65, 127, 331] {
        let ((a, x), (b, y)) = (random(n, 3.0, &mut rng, of), random(n, 3.0, &mut rng, of));
        let mut z = poisoned::<T, _>([n]);
        vector_add::launch(&tensor([n], &a), &tensor([n], &b), &mut z).dims(64).run(stream).unwrap();
        let want: Vec<T> = x.iter().zip(&y).map(|(x, y)| of(x + y)).collect();
        m.exact(&format!("{n}"), z.as_slice(), &want);
    }
}

/// Rows whose values span 20: the difference to the maximum is rounded, by at most 20 units, which is a relative error of
/// its exponential, of the value and of the sum.
fn softmaxes<T: Number>(stream: &Stream, m: &mut Measure, of: fn(f64) -> T, unit: f64) {
    let mut rng = Rng(102);
    for (rows, n) in [(0, 5), (1, 1), (2, 31), (3, 97), (7, 127), (5, 128)] {
        let (x, wide) = random(rows * n, 10.0, &mut rng, of);
        let want: Vec<f64> = wide
            .chunks(n)
            .flat_map(|x| {
                let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = x.iter().map(|x| (x - largest).exp()).sum();
                x.iter().map(move |x| (x - largest).exp() / sum)
            })
            .collect();
        let mut y = poisoned::<T, _>([rows, n]);
        softmax::launch(&tensor([rows, n], &x), &mut y).dims(128).grid(rows).run(stream).unwrap();
        // Below its normal numbers a type has a fixed step.
        let least = if unit == F16 { 6.2e-5 } else { 1e-37 };
        m.near(&format!("{rows} × {n}"), &single(y.as_slice()), &want, |i| Allowed {
            unit: want[i].max(least) * unit,
            bound: rounded(unit, n as f64 + 48.0),
        });
    }
}

fn products<T: Number>(stream: &Stream, measure: &mut Measure, of: fn(f64) -> T, unit: f64) {
    let mut rng = Rng(103);
    for (m, n, k) in [(1, 1, 1), (33, 31, 17), (3, 65, 33), (37, 29, 97), (32, 32, 32), (0, 5, 3), (2, 3, 0)] {
        let ((a, x), (b, y)) = (random(m * k, 2.0, &mut rng, of), random(k * n, 2.0, &mut rng, of));
        let sums = |f: fn(f64) -> f64| -> Vec<f64> {
            (0..m * n).map(|i| (0..k).map(|q| f(x[i / n * k + q] * y[q * n + i % n])).sum()).collect()
        };
        let (want, sizes) = (sums(|p| p), sums(f64::abs));
        let mut c = poisoned::<T, _>([m, n]);
        matmul::launch(&tensor([m, k], &a), &tensor([k, n], &b), &mut c).dims(32, 32, 32).run(stream).unwrap();
        measure.near(&format!("{m} × {n} × {k}"), &single(c.as_slice()), &want, |i| Allowed {
            unit: sizes[i].max(1e-30) * unit,
            bound: rounded(unit, k as f64 + 1.0),
        });
    }
}
