//! Products with packed weights: bits equal to plain Rust in the documented order, hence on all devices and for every
//! tile size; and near the float64 product.

use crate::support::*;
use tegula::{ir::Quant, ir::layout::Layout, prelude::*};
use tegula_kernels::linear::{Epilogue, Quantised, linear, linear_quantised};
use tegula_kernels::quantise::Bits;

const ROWS: [usize; 5] = [1, 2, 3, 7, 17];

/// One fma a k, ascending: the rule for `dot` on f32.
fn chain(x: &[f32], w: &Weights, n: usize) -> f32 {
    x.iter().enumerate().fold(0.0, |acc, (k, x)| x.mul_add(w.at(k, n), acc))
}

/// Bound of such a chain from its exact value: K roundings of sums that are at most Σ|x·w|.
fn chain_bound(x: &[f32], w: &Weights, n: usize) -> (f64, f64) {
    let products = || x.iter().enumerate().map(|(k, x)| f64::from(*x) * f64::from(w.at(k, n)));
    (products().sum(), products().map(f64::abs).sum::<f64>() * (w.k + 1) as f64 * U)
}

/// The rule for `dot_grouped`, from GGUF's blocks: per group of 32 one exact integer product, then one fma, and one more
/// for a minimum.
fn grouped(codes: &[i8], scales: &[f32], sums: &[i32], w: &Weights, n: usize) -> f32 {
    let mut acc = 0.0f32;
    for g in 0..w.k / 32 {
        let group = Layout::Gguf.group(w.quant, &w.gguf, w.k, g, n);
        let x = &codes[32 * g..32 * g + 32];
        let i: i32 = (0..32).map(|j| group.sub[j / 16] * group.codes[j] * i32::from(x[j])).sum();
        acc = (i as f32).mul_add(group.scale * scales[g], acc);
        if let Some(min) = group.min {
            acc = (sums[g] as f32).mul_add(min * scales[g], acc);
        }
    }
    acc
}

fn grid(m: usize, n: usize, bm: usize, bn: usize) -> [usize; 2] {
    [n.div_ceil(bn), m.div_ceil(bm)]
}

#[test]
fn plain_activations() {
    let mut rng = Rng(20);
    for &quant in Quant::ALL {
        let (k, n) = (odd_k(quant, 160), 50);
        let w = Weights::random(quant, k, n, &mut rng);
        let bk = if quant.block() == 256 { 256 } else { 64 };
        for m in ROWS {
            let x = rng.floats(m * k, 2.0);
            let want: Vec<f32> = (0..m * n).map(|i| chain(&x[i / n * k..][..k], &w, i % n)).collect();
            let x_tensor = tensor([m, k], &x);
            let bm = if m == 1 { 1 } else { 8 };
            for (stream, bn) in [(&*CPU, 64), (&*ORACLE, 64), (&*CPU, 16), (&*SM80, 32), (&*SM90A, 64)] {
                let mut y = Tensor::<f32>::poisoned([m, n]).unwrap();
                linear::launch(&x_tensor, &w.packed(stream), &mut y)
                    .dims(bm, bn, bk)
                    .cfg(Epilogue::default())
                    .grid(grid(m, n, bm, bn))
                    .run(stream)
                    .unwrap();
                let what = format!("{quant}, {m} rows, BN = {bn}, {}", stream.device().name());
                same_bits(&what, y.as_slice(), &want);
                let (exact, bounds): (Vec<f64>, Vec<f64>) =
                    (0..m * n).map(|i| chain_bound(&x[i / n * k..][..k], &w, i % n)).unzip();
                close(&what, y.as_slice(), &exact, |i, _| bounds[i]);
            }
        }
    }
}

#[test]
fn quantised_activations() {
    let mut rng = Rng(21);
    for &quant in Quant::ALL.iter().filter(|q| !q.is_float()) {
        let (k, n) = (odd_k(quant, 160), 50);
        let w = Weights::random(quant, k, n, &mut rng);
        let bk = if quant.block() == 256 { 256 } else { 64 };
        for m in ROWS {
            // Codes over their whole range, −128 too, which a quantiser does not make.
            let codes: Vec<i8> = (0..m * k).map(|_| rng.bits() as i8).collect();
            let scales = rng.floats(m * k / 32, 0.05);
            let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|&x| i32::from(x)).sum()).collect();
            let g = k / 32;
            let row = |i: usize| (&codes[i * k..][..k], &scales[i * g..][..g], &sums[i * g..][..g]);
            let want: Vec<f32> = (0..m * n)
                .map(|i| {
                    let (c, s, u) = row(i / n);
                    grouped(c, s, u, &w, i % n)
                })
                .collect();
            let (c, s, u) = (tensor([m, k], &codes), tensor([m, g], &scales), tensor([m, g], &sums));
            let bm = if m == 1 { 1 } else { 8 };
            for (stream, bn) in [(&*CPU, 64), (&*ORACLE, 64), (&*CPU, 16), (&*SM80, 32), (&*SM90A, 64)] {
                let mut y = Tensor::<f32>::poisoned([m, n]).unwrap();
                linear_quantised::launch(&c, &s, &u, &w.packed(stream), &mut y)
                    .dims(bm, bn, bk, bk / 32)
                    .cfg(Quantised::default())
                    .grid(grid(m, n, bm, bn))
                    .run(stream)
                    .unwrap();
                let what = format!("{quant}, {m} rows, BN = {bn}, {}", stream.device().name());
                same_bits(&what, y.as_slice(), &want);
                // The exact product of the dequantised factors: two roundings a group, of scales and of sums.
                for i in 0..m * n {
                    let (c, s, _) = row(i / n);
                    let products = || {
                        (0..k).map(|q| {
                            let group = Layout::Gguf.group(quant, &w.gguf, k, q / 32, i % n);
                            let code = f64::from(group.scale) * f64::from(group.sub[q % 32 / 16] * group.codes[q % 32]);
                            let x = f64::from(c[q]) * f64::from(s[q / 32]);
                            [code * x, group.min.map_or(0.0, f64::from) * x]
                        })
                    };
                    let exact: f64 = products().flatten().sum();
                    let bound = products().flatten().map(f64::abs).sum::<f64>() * (2 * g + 3) as f64 * U;
                    close(&what, &y.as_slice()[i..=i], &[exact], |_, _| bound);
                }
            }
        }
    }
}

/// 16 bits: products of both rows of codes, each as if alone, added; then the residual. On all devices, for every tile size.
#[test]
fn two_rows_of_codes_for_a_row() {
    let mut rng = Rng(25);
    for quant in [Quant::Q4_1, Quant::Q8_0, Quant::Q6_K] {
        let (k, n) = (odd_k(quant, 160), 50);
        let g = k / 32;
        let w = Weights::random(quant, k, n, &mut rng);
        for m in ROWS {
            let codes: Vec<i8> = (0..2 * m * k).map(|_| rng.bits() as i8).collect();
            let scales = rng.floats(2 * m * g, 0.05);
            let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|&x| i32::from(x)).sum()).collect();
            let held = rng.floats(m * n, 3.0);
            let of =
                |r: usize, c: usize| grouped(&codes[r * k..][..k], &scales[r * g..][..g], &sums[r * g..][..g], &w, c);
            let want: Vec<f32> =
                (0..m * n).map(|i| held[i] + (of(2 * (i / n), i % n) + of(2 * (i / n) + 1, i % n))).collect();
            let (c, s, u) = (tensor([2 * m, k], &codes), tensor([2 * m, g], &scales), tensor([2 * m, g], &sums));
            let bk = if quant.block() == 256 { 256 } else { 64 };
            let bm = m.next_power_of_two().min(8);
            for (stream, bm, bn) in
                [(&*CPU, bm, 64), (&*ORACLE, bm, 64), (&*CPU, 2, 16), (&*SM80, bm, 32), (&*SM90A, 2, 64)]
            {
                let mut y = tensor([m, n], &held);
                linear_quantised::launch(&c, &s, &u, &w.packed(stream), &mut y)
                    .dims(bm, bn, bk, bk / 32)
                    .cfg(Quantised { bits: Bits::Sixteen, epilogue: Epilogue { residual: true } })
                    .grid(grid(m, n, bm, bn))
                    .run(stream)
                    .unwrap();
                let what = format!("{quant}, {m} rows, tiles of {bm} × {bn}, {}", stream.device().name());
                same_bits(&what, y.as_slice(), &want);
            }
        }
    }
}

#[test]
fn the_residual_is_added_last() {
    let mut rng = Rng(22);
    let (m, k, n) = (7, 96, 33);
    let w = Weights::random(Quant::Q4_1, k, n, &mut rng);
    let (x, held) = (rng.floats(m * k, 1.0), rng.floats(m * n, 3.0));
    let codes: Vec<i8> = (0..m * k).map(|_| rng.bits() as i8).collect();
    let scales = rng.floats(m * k / 32, 0.05);
    let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|&x| i32::from(x)).sum()).collect();
    let g = k / 32;
    let plain: Vec<f32> = (0..m * n).map(|i| held[i] + chain(&x[i / n * k..][..k], &w, i % n)).collect();
    let quantised: Vec<f32> = (0..m * n)
        .map(|i| {
            let r = i / n;
            held[i] + grouped(&codes[r * k..][..k], &scales[r * g..][..g], &sums[r * g..][..g], &w, i % n)
        })
        .collect();
    let cfg = Epilogue { residual: true };
    for stream in devices() {
        let mut y = tensor([m, n], &held);
        let dims = (4, 16, 32);
        linear::launch(&tensor([m, k], &x), &w.packed(stream), &mut y)
            .dims(dims.0, dims.1, dims.2)
            .cfg(cfg)
            .grid(grid(m, n, dims.0, dims.1))
            .run(stream)
            .unwrap();
        same_bits("plain", y.as_slice(), &plain);
        let mut y = tensor([m, n], &held);
        let (c, s, u) = (tensor([m, k], &codes), tensor([m, g], &scales), tensor([m, g], &sums));
        linear_quantised::launch(&c, &s, &u, &w.packed(stream), &mut y)
            .dims(dims.0, dims.1, dims.2, 1)
            .cfg(Quantised { epilogue: cfg, ..Quantised::default() })
            .grid(grid(m, n, dims.0, dims.1))
            .run(stream)
            .unwrap();
        same_bits("quantised", y.as_slice(), &quantised);
    }
}

/// Rows and columns of larger matrices: strided activations, strided results.
#[test]
fn parts_of_larger_tensors() {
    let mut rng = Rng(23);
    let (m, k, n) = (3, 33, 17);
    let w = Weights::random(Quant::F16, k, n, &mut rng);
    let x = rng.floats(5 * 40, 1.0);
    for stream in devices() {
        let x_tensor = tensor([5, 40], &x);
        let part = x_tensor.slice(0, 1..1 + m).unwrap().slice(1, 2..2 + k).unwrap();
        let mut y = Tensor::<f32>::poisoned([6, 30]).unwrap();
        let view = y.view_mut().unwrap().slice(0, 2..2 + m).unwrap().slice(1, 5..5 + n).unwrap();
        linear::launch(part, &w.packed(stream), view)
            .dims(2, 16, 16)
            .cfg(Epilogue::default())
            .grid(grid(m, n, 2, 16))
            .run(stream)
            .unwrap();
        for (i, got) in y.as_slice().iter().enumerate() {
            let (row, column) = (i / 30, i % 30);
            if (2..2 + m).contains(&row) && (5..5 + n).contains(&column) {
                let want = chain(&x[(row - 1) * 40 + 2..][..k], &w, column - 5);
                assert_eq!(got.to_bits(), want.to_bits(), "{i}");
            } else {
                assert!(got.is_nan(), "{i} was written");
            }
        }
    }
}

/// BM, BN and BK are schedule parameters: they change no bit. Sizes as in a model, on the CPU.
#[test]
fn tile_sizes_change_no_bit() {
    let mut rng = Rng(24);
    let (m, n) = (45, 200);
    for (quant, k) in [(Quant::Q8_0, 576), (Quant::Q5_1, 576), (Quant::Q4_K, 768), (Quant::Q6_K, 768)] {
        let g = k / 32;
        let w = Weights::random(quant, k, n, &mut rng);
        let packed = w.packed(&CPU);
        let codes: Vec<i8> = (0..m * k).map(|_| rng.bits() as i8).collect();
        let scales = rng.floats(m * g, 0.05);
        let sums: Vec<i32> = codes.chunks(32).map(|c| c.iter().map(|&x| i32::from(x)).sum()).collect();
        let x: Vec<f32> = codes.iter().enumerate().map(|(i, c)| f32::from(*c) * scales[i / 32]).collect();
        // Every third column: what the tiles hold of the others is computed alike.
        let columns: Vec<usize> = (0..n).step_by(3).chain([n - 1]).collect();
        let places: Vec<(usize, usize)> = (0..m).flat_map(|r| columns.iter().map(move |&c| (r, c))).collect();
        let want_q: Vec<f32> = places
            .iter()
            .map(|&(r, c)| grouped(&codes[r * k..][..k], &scales[r * g..][..g], &sums[r * g..][..g], &w, c))
            .collect();
        let want_f: Vec<f32> = places.iter().map(|&(r, c)| chain(&x[r * k..][..k], &w, c)).collect();
        let chosen = |y: &Tensor<f32>| -> Vec<f32> { places.iter().map(|&(r, c)| y.as_slice()[r * n + c]).collect() };

        let (c, s, u) = (tensor([m, k], &codes), tensor([m, g], &scales), tensor([m, g], &sums));
        let x = tensor([m, k], &x);
        let bks = if quant.block() == 256 { [256, 768] } else { [96, 576] };
        for (bm, bn, bk) in [(1, 64, bks[0]), (6, 16, bks[0]), (32, 64, bks[1]), (64, 128, bks[0])] {
            let what = format!("{quant}, BM = {bm}, BN = {bn}, BK = {bk}");
            let mut y = Tensor::<f32>::poisoned([m, n]).unwrap();
            linear_quantised::launch(&c, &s, &u, &packed, &mut y)
                .dims(bm, bn, bk, bk / 32)
                .cfg(Quantised::default())
                .grid(grid(m, n, bm, bn))
                .run(&*CPU)
                .unwrap();
            same_bits(&what, &chosen(&y), &want_q);
            let mut y = Tensor::<f32>::poisoned([m, n]).unwrap();
            linear::launch(&x, &packed, &mut y)
                .dims(bm, bn, bk.min(256))
                .cfg(Epilogue::default())
                .grid(grid(m, n, bm, bn))
                .run(&*CPU)
                .unwrap();
            same_bits(&format!("plain, {what}"), &chosen(&y), &want_f);
        }
    }
}
