//! Vector add, softmax and the matrix product, in several element types.

use crate::support::*;
use half::{bf16, f16};
use tegula::prelude::*;
use tegula_kernels::basic::{matmul, softmax, vector_add};

#[test]
fn sums_of_vectors() {
    let mut rng = Rng(80);
    for n in [1, 2, 17, 95, 300] {
        let (a, b) = (rng.floats(n, 3.0), rng.floats(n, 3.0));
        let (i, j): (Vec<i32>, Vec<i32>) = (0..n).map(|_| (rng.bits() as i32, rng.bits() as i32)).unzip();
        let halves = |v: &[f32]| v.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        let (p, q) = (halves(&a), halves(&b));
        for stream in devices() {
            let mut z = Tensor::<f32>::poisoned([n]).unwrap();
            vector_add::launch(&tensor([n], &a), &tensor([n], &b), &mut z).dims(64).run(stream).unwrap();
            let want: Vec<f32> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
            same_bits("f32", z.as_slice(), &want);
            // Integers wrap.
            let mut z = Tensor::<i32>::poisoned([n]).unwrap();
            vector_add::launch(&tensor([n], &i), &tensor([n], &j), &mut z).dims(64).run(stream).unwrap();
            let want: Vec<i32> = i.iter().zip(&j).map(|(x, y)| x.wrapping_add(*y)).collect();
            same_bits("i32", z.as_slice(), &want);
            // A sum of two f16 is exact in f64 and rounded once.
            let mut z = Tensor::<f16>::poisoned([n]).unwrap();
            vector_add::launch(&tensor([n], &p), &tensor([n], &q), &mut z).dims(64).run(stream).unwrap();
            let want: Vec<f16> = p.iter().zip(&q).map(|(x, y)| f16::from_f64(x.to_f64() + y.to_f64())).collect();
            same_bits("f16", z.as_slice(), &want);
        }
    }
}

#[test]
fn softmax_of_rows() {
    let mut rng = Rng(81);
    for (rows, n) in [(1, 1), (2, 31), (3, 96), (7, 77), (17, 128)] {
        // Rows far above and below what exp can take.
        let x: Vec<f32> = (0..rows)
            .flat_map(|r| rng.floats(n, 10.0).into_iter().map(move |x| x + 200.0 * (r % 3) as f32 - 200.0))
            .collect();
        let x16: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
        let reference = |x: Vec<f64>| -> Vec<f64> {
            x.chunks(n)
                .flat_map(|x| {
                    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let e: Vec<f64> = x.iter().map(|x| (x - max).exp()).collect();
                    let sum: f64 = e.iter().sum();
                    e.into_iter().map(move |e| e / sum)
                })
                .collect()
        };
        let want = reference(x.iter().map(|x| f64::from(*x)).collect());
        let want16 = reference(x16.iter().map(|x| x.to_f64()).collect());
        for stream in devices() {
            let what = format!("{rows} × {n}, {}", stream.device().name());
            let mut y = Tensor::<f32>::poisoned([rows, n]).unwrap();
            softmax::launch(&tensor([rows, n], &x), &mut y).dims(128).grid(rows).run(stream).unwrap();
            // The difference to the maximum is rounded, at most 20·u, which is a relative error of the exponential; then
            // exp's own few u, the sum's n·u, the quotient's.
            close(&what, y.as_slice(), &want, |_, w| w * (20.0 * 2.0 + n as f64 + 8.0) * U);
            let mut y = Tensor::<bf16>::poisoned([rows, n]).unwrap();
            softmax::launch(&tensor([rows, n], &x16), &mut y).dims(128).grid(rows).run(stream).unwrap();
            // One rounding to 8 bits of mantissa on top.
            let got: Vec<f32> = y.as_slice().iter().map(|y| y.to_f32()).collect();
            close(&format!("bf16, {what}"), &got, &want16, |_, w| w * (1.0 / 256.0 + 1e-5));
        }
    }
}

#[test]
fn products_of_matrices() {
    let mut rng = Rng(82);
    for (m, n, k) in [(1, 1, 1), (3, 50, 33), (17, 15, 96), (7, 17, 160), (33, 47, 31)] {
        let (a, b) = (rng.floats(m * k, 2.0), rng.floats(k * n, 2.0));
        // One fma a k, ascending.
        let chain = |i: usize| (0..k).fold(0.0f32, |acc, q| a[i / n * k + q].mul_add(b[q * n + i % n], acc));
        let want: Vec<f32> = (0..m * n).map(chain).collect();
        let (a16, b16): (Vec<bf16>, Vec<bf16>) =
            (a.iter().map(|x| bf16::from_f32(*x)).collect(), b.iter().map(|x| bf16::from_f32(*x)).collect());
        for (stream, dims) in [
            (&*CPU, (32, 32, 32)),
            (&*ORACLE, (16, 16, 32)),
            (&*CPU, (6, 16, 64)),
            (&*SM80, (32, 32, 32)),
            (&*SM90A, (16, 64, 16)),
        ] {
            let what = format!("{m} × {n} × {k}, {}", stream.device().name());
            let mut c = Tensor::<f32>::poisoned([m, n]).unwrap();
            matmul::launch(&tensor([m, k], &a), &tensor([k, n], &b), &mut c)
                .dims(dims.0, dims.1, dims.2)
                .run(stream)
                .unwrap();
            same_bits(&what, c.as_slice(), &want);
            let mut c = Tensor::<bf16>::poisoned([m, n]).unwrap();
            matmul::launch(&tensor([m, k], &a16), &tensor([k, n], &b16), &mut c)
                .dims(dims.0, dims.1, dims.2)
                .run(stream)
                .unwrap();
            for (i, got) in c.as_slice().iter().enumerate() {
                let products = || (0..k).map(|q| a16[i / n * k + q].to_f64() * b16[q * n + i % n].to_f64());
                let (want, size): (f64, f64) = (products().sum(), products().map(f64::abs).sum());
                let bound = size * (k + 1) as f64 * U + want.abs() / 256.0;
                close(&format!("bf16, {what}"), &[got.to_f32()], &[want], |_, _| bound);
            }
        }
    }
}
