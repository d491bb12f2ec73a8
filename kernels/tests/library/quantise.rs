//! Activations to groups of 8 or 16 bits: exact.

use crate::support::*;
use tegula::prelude::*;
use tegula_kernels::quantise::{Bits, quantise};

/// Codes, scales and sums of rows whose length is a multiple of 32, by the definition.
pub fn reference(x: &[f32]) -> (Vec<i8>, Vec<f32>, Vec<i32>) {
    let (mut codes, mut scales, mut sums) = (vec![], vec![], vec![]);
    for group in x.chunks(32) {
        let scale = group.iter().fold(0.0f32, |m, x| m.max(x.abs())) * (1.0 / 127.0);
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let at = codes.len();
        codes.extend(group.iter().map(|x| (x * inverse).round_ties_even() as i8));
        scales.push(scale);
        sums.push(codes[at..].iter().map(|&c| i32::from(c)).sum());
    }
    (codes, scales, sums)
}

/// The same for rows of `k`, so finely: for 16 bits each row's codes, then those of what they leave.
pub fn reference_of(x: &[f32], k: usize, bits: Bits) -> (Vec<i8>, Vec<f32>, Vec<i32>) {
    if bits == Bits::Eight {
        return reference(x);
    }
    let mut all = (vec![], vec![], vec![]);
    for row in x.chunks(k) {
        let coarse = reference(row);
        let rest: Vec<f32> =
            row.iter().enumerate().map(|(i, x)| x - f32::from(coarse.0[i]) * coarse.1[i / 32]).collect();
        for (codes, scales, sums) in [coarse, reference(&rest)] {
            all.0.extend(codes);
            all.1.extend(scales);
            all.2.extend(sums);
        }
    }
    all
}

#[test]
fn codes_scales_and_sums() {
    let mut rng = Rng(30);
    for (rows, groups) in [(1, 1), (2, 3), (3, 5), (7, 7), (17, 9)] {
        let k = 32 * groups;
        let mut x = rng.floats(rows * k, 1.0);
        for (i, group) in x.chunks_mut(32).enumerate() {
            // Sizes from 1e-6 to 1e6, a group of zeros, one of halves that round to even.
            let size = 10f32.powi(i as i32 % 13 - 6);
            group.iter_mut().for_each(|x| *x *= size);
            if i % 11 == 3 {
                group.fill(0.0);
            }
            if i % 11 == 5 {
                (0..32).for_each(|j| group[j] = j as f32 - 15.5);
                group[0] = 127.0;
            }
        }
        for (stream, bits) in devices().into_iter().flat_map(|s| [(s, Bits::Eight), (s, Bits::Sixteen)]) {
            let want = reference_of(&x, k, bits);
            let r = rows * bits.rows();
            let (mut c, mut s, mut u) = (
                Tensor::<i8>::poisoned([r, k]).unwrap(),
                Tensor::<f32>::poisoned([r, groups]).unwrap(),
                Tensor::<i32>::poisoned([r, groups]).unwrap(),
            );
            quantise::launch(&tensor([rows, k], &x), &mut c, &mut s, &mut u)
                .dims(groups)
                .cfg(bits)
                .grid(rows)
                .run(stream)
                .unwrap();
            same_bits("codes", c.as_slice(), &want.0);
            same_bits("scales", s.as_slice(), &want.1);
            same_bits("sums", u.as_slice(), &want.2);
            // What the codes mean: within half the last scale, and a rounding, of what went in.
            for (i, x) in x.iter().enumerate() {
                let (row, column) = (i / k * bits.rows(), i % k);
                let of = |row: usize| {
                    let scale = f64::from(s.as_slice()[row * groups + column / 32]);
                    (f64::from(c.as_slice()[row * k + column]) * scale, scale)
                };
                let (value, scale) = (row..row + bits.rows()).map(of).fold((0.0, 0.0), |a, b| (a.0 + b.0, b.1));
                let bound = 0.5001 * scale + f64::from(x.abs()) * U;
                assert!((value - f64::from(*x)).abs() <= bound, "{i}: {x} became {value}, by steps of {scale}");
            }
        }
    }
}

#[test]
fn groups_with_a_nan_stay_nan_and_tiny_ones_are_zeros() {
    let x: Vec<f32> = (0..96)
        .map(|i| match i {
            5 => f32::NAN,
            0..32 => i as f32 - 15.5,
            // Beside 3e-37 others must not become codes beyond 127, as they would by 1/scale = inf.
            32 => 3e-37,
            33..64 => -3e-39,
            _ => f32::INFINITY,
        })
        .collect();
    for (stream, bits) in devices().into_iter().flat_map(|s| [(s, Bits::Eight), (s, Bits::Sixteen)]) {
        let rows = bits.rows();
        let (mut c, mut s, mut u) = (
            Tensor::<i8>::poisoned([rows, 96]).unwrap(),
            Tensor::<f32>::poisoned([rows, 3]).unwrap(),
            Tensor::<i32>::poisoned([rows, 3]).unwrap(),
        );
        let x = tensor([1, 96], &x);
        quantise::launch(&x, &mut c, &mut s, &mut u).dims(3).cfg(bits).grid(1).run(stream).unwrap();
        let product = |group: usize| {
            let of = |row: usize| f64::from(s.as_slice()[row * 3 + group]) * f64::from(u.as_slice()[row * 3 + group]);
            (0..rows).map(of).sum::<f64>()
        };
        assert!(product(0).is_nan(), "a NaN reaches the products of its group");
        assert!(product(2).is_nan(), "so does an infinity");
        assert!(c.as_slice().chunks(96).all(|row| row[32..64].iter().all(|&c| c == 0)), "tiny values are zeros");
    }
}
