//! Norms, SwiGLU, quantisation.

use super::{
    Case,
    measure::{Allowed, F32, Measure},
};
use crate::support::*;
use tegula::prelude::*;
use tegula_kernels::{
    activation::{swiglu, swiglu_quantise},
    norm::{rms_norm, rms_norm_quantise, rms_norm_rows},
    quantise::{Bits, quantise},
};

const VALUE: &str = "2⁻²⁴ of the value";
const STEP: &str = "steps of the codes";

pub const CASES: &[Case] = &[
    Case { kernel: "rms_norm", of: "", unit: VALUE, bound: "n/2 + 8", run: norms },
    Case { kernel: "rms_norm_rows", of: "", unit: VALUE, bound: "n/2 + 8", run: norms_of_rows },
    Case { kernel: "swiglu", of: "", unit: VALUE, bound: "8", run: swiglus },
    Case { kernel: "quantise", of: "8 bits", unit: STEP, bound: "½", run: |s, m| quantised(s, m, Bits::Eight) },
    Case { kernel: "quantise", of: "16 bits", unit: STEP, bound: "½", run: |s, m| quantised(s, m, Bits::Sixteen) },
    Case {
        kernel: "rms_norm_quantise",
        of: "8 bits",
        unit: STEP,
        bound: "½, and the norm's",
        run: |s, m| norms_quantised(s, m, Bits::Eight),
    },
    Case {
        kernel: "rms_norm_quantise",
        of: "16 bits",
        unit: STEP,
        bound: "½, and the norm's",
        run: |s, m| norms_quantised(s, m, Bits::Sixteen),
    },
    Case {
        kernel: "swiglu_quantise",
        of: "8 bits",
        unit: STEP,
        bound: "½, and SwiGLU's",
        run: |s, m| swiglus_quantised(s, m, Bits::Eight),
    },
    Case {
        kernel: "swiglu_quantise",
        of: "16 bits",
        unit: STEP,
        bound: "½, and SwiGLU's",
        run: |s, m| swiglus_quantised(s, m, Bits::Sixteen),
    },
];

const EPS: f32 = 1e-5;

/// The sum of n squares is off by at most n + 1 units in any order, its root by half of that; a few roundings follow.
fn norm_bound(n: usize) -> f64 {
    n as f64 / 2.0 + 8.0
}
const SWIGLU_BOUND: f64 = 8.0;

fn norm(x: &[f32], weight: &[f32]) -> Vec<f64> {
    let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / x.len() as f64;
    let scale = (mean + f64::from(EPS)).sqrt();
    x.iter().zip(weight).map(|(x, w)| f64::from(*x) / scale * f64::from(*w)).collect()
}

fn silu_up(x: &[f32], n: usize) -> Vec<f64> {
    let of = |row: &[f32], i: usize| {
        let (gate, up) = (f64::from(row[i]), f64::from(row[n + i]));
        gate / (1.0 + (-gate).exp()) * up
    };
    x.chunks(2 * n).flat_map(|row| (0..n).map(move |i| of(row, i))).collect()
}

fn relative(want: &[f64], bound: f64) -> impl Fn(usize) -> Allowed {
    move |i| Allowed { unit: want[i].abs().max(1e-30) * F32, bound }
}

fn norms(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(110);
    for n in [1, 97, 577] {
        let weight = rng.floats(n, 2.0);
        for rows in [0, 1, 3, 17] {
            // Rows of very different sizes; eps decides the smallest.
            let x: Vec<f32> = (0..rows).flat_map(|r| rng.floats(n, 10f32.powi(3 - r % 7))).collect();
            let want: Vec<f64> = x.chunks(n).flat_map(|x| norm(x, &weight)).collect();
            let rows = rows as usize;
            let mut y = poisoned::<f32, _>([rows, n]);
            rms_norm::launch(&tensor([rows, n], &x), &tensor([1, n], &weight), &mut y, EPS)
                .dims(n)
                .grid(rows)
                .run(stream)
                .unwrap();
            m.near(&format!("{rows} × {n}"), y.as_slice(), &want, relative(&want, norm_bound(n)));
        }
    }
}

fn norms_of_rows(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(111);
    let (rows, n) = (17, 97);
    let (x, weight) = (rng.floats(rows * n, 3.0), rng.floats(n, 1.0));
    for chosen in [&[][..], &[16], &[16, 0, 3, 3, 9]] {
        let want: Vec<f64> = chosen.iter().flat_map(|&r| norm(&x[r as usize * n..][..n], &weight)).collect();
        let count = chosen.len();
        let mut y = poisoned::<f32, _>([count, n]);
        rms_norm_rows::launch(&tensor([rows, n], &x), &tensor([1, n], &weight), &tensor([count], chosen), &mut y, EPS)
            .dims(n)
            .grid(count)
            .run(stream)
            .unwrap();
        m.near(&format!("rows {chosen:?}"), y.as_slice(), &want, relative(&want, norm_bound(n)));
    }
}

/// Gates from −12 to 12, and two far outside.
fn gates(rows: usize, n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut x = rng.floats(rows * 2 * n, 12.0);
    if let Some(first) = x.first_mut() {
        *first = -80.0;
        x[n * 2 * (rows - 1)] = 100.0;
    }
    x
}

fn swiglus(stream: &Stream, m: &mut Measure) {
    let mut rng = Rng(112);
    for n in [1, 31, 97, 545] {
        for rows in [0, 1, 3, 17] {
            let x = gates(rows, n, &mut rng);
            let want = silu_up(&x, n);
            let mut y = poisoned::<f32, _>([rows, n]);
            swiglu::launch(&tensor([rows, 2 * n], &x), &mut y).dims(n).grid(rows).run(stream).unwrap();
            m.near(&format!("{rows} × {n}"), y.as_slice(), &want, relative(&want, SWIGLU_BOUND));
        }
    }
}

/// Codes, scales and sums of rows, poisoned.
struct Groups {
    bits: Bits,
    rows: usize,
    groups: usize,
    codes: Tensor<i8>,
    scales: Tensor<f32>,
    sums: Tensor<i32>,
}

impl Groups {
    fn poisoned(rows: usize, groups: usize, bits: Bits) -> Groups {
        let r = rows * bits.rows();
        Groups {
            bits,
            rows,
            groups,
            codes: poisoned([r, 32 * groups]),
            scales: poisoned([r, groups]),
            sums: poisoned([r, groups]),
        }
    }

    /// That they mean the wanted values, which are known to within `units` of 2⁻²⁴; that scales are the largest magnitude's
    /// and sums those of the codes.
    fn check(&self, m: &mut Measure, want: &[f64], units: f64) {
        let (rows, groups, k) = (self.bits.rows(), self.groups, 32 * self.groups);
        let (codes, scales) = (self.codes.as_slice(), self.scales.as_slice());
        let what = format!("{} × {k}", self.rows);
        let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|c| i32::from(*c)).sum()).collect();
        m.exact(&format!("sums, {what}"), self.sums.as_slice(), &sums);
        for (i, group) in want.chunks(32).enumerate() {
            let largest = group.iter().fold(0.0, |m: f64, x| m.max(x.abs())) / 127.0;
            let scale = f64::from(scales[(i / groups) * rows * groups + i % groups]);
            let right = (scale - largest).abs() <= largest * (units + 2.0) * F32;
            m.require(right, || format!("scale {i} of {what} is {scale}, want {largest}"));
        }
        // The value of element i by row `r` of codes, and its step.
        let of = |i: usize, r: usize| {
            let row = i / k * rows + r;
            let scale = f64::from(scales[row * groups + i % k / 32]);
            (f64::from(codes[row * k + i % k]) * scale, scale)
        };
        let got: Vec<f64> = (0..want.len()).map(|i| (0..rows).map(|r| of(i, r).0).sum()).collect();
        // Compared as differences: f32 could not hold 16 bits of a value and what is left.
        let left: Vec<f32> = got.iter().zip(want).map(|(g, w)| (g - w) as f32).collect();
        m.near(&what, &left, &vec![0.0; want.len()], |i| {
            let step = of(i, rows - 1).1.max(1e-30);
            // Half a step, its own rounding, that of what the first row leaves, and what the value is off by.
            Allowed { unit: step, bound: 0.5001 + (units + 1.0) * F32 * want[i].abs() / step }
        });
    }
}

const SIZES: [(usize, usize); 5] = [(0, 3), (1, 1), (2, 3), (3, 7), (17, 5)];

fn quantised(stream: &Stream, m: &mut Measure, bits: Bits) {
    let mut rng = Rng(113);
    for (rows, groups) in SIZES {
        let k = 32 * groups;
        let mut x = rng.floats(rows * k, 1.0);
        for (i, group) in x.chunks_mut(32).enumerate() {
            // Sizes from 1e-6 to 1e6.
            group.iter_mut().for_each(|x| *x *= 10f32.powi(i as i32 % 13 - 6));
        }
        let mut out = Groups::poisoned(rows, groups, bits);
        quantise::launch(&tensor([rows, k], &x), &mut out.codes, &mut out.scales, &mut out.sums)
            .dims(groups)
            .cfg(bits)
            .grid(rows)
            .run(stream)
            .unwrap();
        out.check(m, &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), 0.0);
    }
}

fn norms_quantised(stream: &Stream, m: &mut Measure, bits: Bits) {
    let mut rng = Rng(114);
    for (rows, groups) in SIZES {
        let n = 32 * groups;
        let (x, weight) = (rng.floats(rows * n, 2.0), rng.floats(n, 1.0));
        let want: Vec<f64> = x.chunks(n).flat_map(|x| norm(x, &weight)).collect();
        let mut out = Groups::poisoned(rows, groups, bits);
        let (x, weight) = (tensor([rows, n], &x), tensor([1, n], &weight));
        rms_norm_quantise::launch(&x, &weight, &mut out.codes, &mut out.scales, &mut out.sums, EPS)
            .dims(groups)
            .cfg(bits)
            .grid(rows)
            .run(stream)
            .unwrap();
        out.check(m, &want, norm_bound(n));
    }
}

fn swiglus_quantised(stream: &Stream, m: &mut Measure, bits: Bits) {
    let mut rng = Rng(115);
    for (rows, groups) in SIZES {
        let n = 32 * groups;
        let x = rng.floats(rows * 2 * n, 4.0);
        let mut out = Groups::poisoned(rows, groups, bits);
        swiglu_quantise::launch(&tensor([rows, 2 * n], &x), &mut out.codes, &mut out.scales, &mut out.sums)
            .dims(groups)
            .cfg(bits)
            .grid(rows)
            .run(stream)
            .unwrap();
        out.check(m, &silu_up(&x, n), SWIGLU_BOUND);
    }
}
