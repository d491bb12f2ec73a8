//! Whole kernels, run on the oracle beside plain Rust.
#![allow(clippy::assign_op_pattern)]
extern crate tegula_lang as tegula;
mod support;
use support::*;
use tegula::prelude::*;
use tegula_ir::OpKind;

#[kernel(configs = [{ T: f32, N: 16 }, { T: bf16, N: 1024 }])]
pub fn softmax<T: Float, N: Dim>(x: View<T, 2>, y: ViewMut<T, 2>) {
    let row = program_id(0);
    let t = x.load::<(One, N)>((row, 0)).cast::<f32>();
    let t = select(iota::<N>().expand::<0>() < x.dim::<1>(), t, f32::NEG_INFINITY);
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), (e / e.sum::<1>()).cast());
}

#[test]
fn softmax_agrees() {
    let (m, n) = (3, 13);
    let x = Tensor::new(&[m, n], random_f32(1));
    let mut y = Tensor::<f32>::poisoned(&[m, n]);
    softmax::launch(&x, &mut y).dims(16).grid(m).run(&Oracle::default()).unwrap();
    let want = x.data.chunks(n).flat_map(|r| {
        let sum: f64 = r.iter().map(|v| (*v as f64).exp()).sum();
        r.iter().map(move |v| (*v as f64).exp() / sum).collect::<Vec<_>>()
    });
    close(y.data.iter().map(|v| *v as f64), want, 1e-5);
}

#[kernel(configs = [{ T: f32, BM: 128, BN: 128, BK: 64 }, { T: bf16, BM: 16, BN: 32, BK: 16 }])]
pub fn matmul<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (pm, pn) = grouped::<BM, BN>(program_id(0), &c, 2);
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        acc = dot(a.load::<(BM, BK)>((pm, k)), b.load::<(BK, BN)>((k, pn)), acc);
    }
    c.store((pm, pn), acc.cast());
}

#[test]
fn matmul_agrees() {
    let (m, k, n) = (20, 19, 11);
    let a = Tensor::new(&[m, k], random_bf16(1));
    let b = Tensor::new(&[k, n], random_bf16(2));
    let mut c = Tensor::<bf16>::poisoned(&[m, n]);
    let oracle = Oracle::default();
    // The grid follows from c's tiles: 5 × 3.
    matmul::launch(&a, &b, &mut c).dims(4, 4, 8).run(&oracle).unwrap();
    let want =
        (0..m * n).map(|j| (0..k).map(|q| a.data[j / n * k + q].to_f64() * b.data[q * n + j % n].to_f64()).sum());
    close(c.data.iter().map(|v| v.to_f64()), want, 1e-2);
    assert_eq!(count(oracle.last.borrow().as_ref().unwrap(), OpKind::For), 1);
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attention {
    causal: bool,
}

#[kernel(configs = [{ T: bf16, D: 64, BM: 16, BN: 32, cfg: Attention { causal: true } }])]
fn flash<T: Float, D: Dim, BM: Dim, BN: Dim>(
    q: View<T, 2>,
    k: View<T, 2>,
    v: View<T, 2>,
    o: ViewMut<T, 2>,
    scale: Scalar<f32>,
    #[build] cfg: Attention,
) {
    let pm = program_id(0);
    let n = k.dim::<0>();
    let qt = q.load::<(BM, D)>((pm, 0));
    let rows = (iota::<BM>() + pm * BM::extent()).expand::<1>();
    let mut m = full::<f32, (BM, One)>(f32::NEG_INFINITY);
    let mut l = zeros::<f32, (BM, One)>();
    let mut acc = zeros::<f32, (BM, D)>();
    let mut end = n;
    if cfg.causal {
        end = min(n, (pm + 1) * BM::extent());
    }
    for j in 0..cdiv(end, BN::extent()) {
        let kt = k.load::<(BN, D)>((j, 0));
        let s = dot(qt, kt.t(), zeros()) * scale;
        let cols = (iota::<BN>() + j * BN::extent()).expand::<0>();
        let mask = if cfg.causal { cols < n && cols <= rows } else { (cols < n).broadcast() };
        let s = select(mask, s, f32::NEG_INFINITY);
        let m_new = m.maximum(s.max::<1>());
        let p = (s - m_new).exp();
        let alpha = (m - m_new).exp();
        l = l * alpha + p.sum::<1>();
        acc = dot(p.cast::<T>(), v.load((j, 0)), acc * alpha);
        m = m_new;
    }
    o.store((pm, 0), (acc / l).cast());
}

#[test]
fn flash_attention_agrees() {
    let (n, d) = (21, 8);
    for causal in [true, false] {
        let [q, k, v] = [1, 2, 3].map(|s| Tensor::new(&[n, d], random_bf16(s)));
        let mut o = Tensor::<bf16>::poisoned(&[n, d]);
        flash::launch(&q, &k, &v, &mut o, 0.5)
            .dims(8, 4, 8)
            .cfg(Attention { causal })
            .grid(n.div_ceil(4))
            .run(&Oracle::default())
            .unwrap();
        let mut want = vec![];
        for i in 0..n {
            let p: Vec<f64> = (0..n)
                .map(|j| {
                    let s: f64 = (0..d).map(|x| q.data[i * d + x].to_f64() * k.data[j * d + x].to_f64()).sum();
                    if causal && j > i { 0.0 } else { (s * 0.5).exp() }
                })
                .collect();
            let sum: f64 = p.iter().sum();
            want.extend((0..d).map(|x| (0..n).map(|j| p[j] * v.data[j * d + x].to_f64()).sum::<f64>() / sum));
        }
        close(o.data.iter().map(|v| v.to_f64()), want, 2e-2);
    }
}

#[kernel]
fn layer_norm<N: Dim, const RMS: bool>(
    x: View<f32, 2>,
    w: View<f32, 1>,
    y: ViewMut<f32, 2>,
    eps: Scalar<f32>,
    mode: Scalar<i32>,
) {
    let row = program_id(0);
    let n = x.dim::<1>().cast::<f32>();
    let mut t = x.load::<(One, N)>((row, 0));
    if !RMS {
        let mean = t.sum::<1>() / n;
        t = select(iota::<N>().expand::<0>() < x.dim::<1>(), t - mean, 0.0);
    }
    let var = (t * t).sum::<1>() / n;
    let mut r = t * (var + eps).rsqrt();
    let w = w.load::<(N,)>(0).expand::<0>();
    if mode == 1 {
        r = r * w
    } else if mode == 2 {
        r *= w + 1.0;
    } else if mode > 10 {
        r = -r;
    }
    y.store((row, 0), r);
}

#[test]
fn layer_norm_agrees() {
    let (m, n) = (3, 13);
    let x = Tensor::new(&[m, n], random_f32(1));
    let w = Tensor::new(&[n], random_f32(5));
    for (mode, rms) in [(0, false), (1, false), (2, false), (11, false), (1, true)] {
        let mut y = Tensor::<f32>::poisoned(&[m, n]);
        if rms {
            layer_norm::launch::<true>(&x, &w, &mut y, 1e-5, mode).dims(16).grid(m).run(&Oracle::default()).unwrap();
        } else {
            layer_norm::launch::<false>(&x, &w, &mut y, 1e-5, mode).dims(16).grid(m).run(&Oracle::default()).unwrap();
        }
        let mut want = vec![];
        for r in x.data.chunks(n) {
            let r: Vec<f64> = r.iter().map(|v| *v as f64).collect();
            let mean = if rms { 0.0 } else { r.iter().sum::<f64>() / n as f64 };
            let var = r.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
            want.extend(r.iter().zip(&w.data).map(|(v, w)| {
                let z = (v - mean) / (var + 1e-5).sqrt();
                match mode {
                    1 => z * *w as f64,
                    2 => z * (*w as f64 + 1.0),
                    11 => -z,
                    _ => z,
                }
            }));
        }
        close(y.data.iter().map(|v| *v as f64), want, 1e-4);
    }
}

#[func]
fn gcd_of(a: Scalar<i32>, b: Scalar<i32>) -> Scalar<i32> {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[kernel]
fn gcd(a: Scalar<i32>, b: Scalar<i32>, out: ViewMut<i32, 1>) {
    out.set(0, gcd_of(a, b));
}

#[test]
fn gcd_agrees() {
    for (a, b, want) in [(252, 105, 21), (17, 5, 1), (0, 9, 9), (12, 0, 12)] {
        let mut out = Tensor::<i32>::poisoned(&[1]);
        gcd::launch(a, b, &mut out).grid(1).run(&Oracle::default()).unwrap();
        assert_eq!(out.data, [want]);
    }
}

/// The first index with table[i] ≥ x.
#[kernel]
fn lower_bound(table: View<i32, 1>, x: Scalar<i32>, out: ViewMut<i32, 1>) {
    let mut lo = scalar(0);
    let mut hi = table.dim::<0>();
    while lo < hi {
        let mid = (lo + hi) / 2;
        if table.at(mid) < x {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    out.set(0, lo);
}

#[test]
fn lower_bound_agrees() {
    let table = Tensor::new(&[10], |i| i as i32 * 3);
    for x in [-1, 0, 4, 27, 99] {
        let mut out = Tensor::<i32>::poisoned(&[1]);
        lower_bound::launch(&table, x, &mut out).grid(1).run(&Oracle::default()).unwrap();
        assert_eq!(out.data[0] as usize, table.data.partition_point(|v| *v < x));
    }
}

/// y = W·x with W in groups of 32 four-bit codes (low nibbles are the first half) and one scale a group.
#[kernel]
fn dequant_matvec<BN: Dim>(w: View<u8, 2>, scales: View<f32, 2>, x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let pn = program_id(0);
    let mut acc = zeros::<f32, (BN, One)>();
    for g in scales.tiles_along::<1, One>() {
        let q = w.load::<(BN, C<16>)>((pn, g));
        let codes = (q & 15).cat::<1, _>(q >> 4).same::<1, C<32>>().cast::<f32>() - 8.0;
        let s = scales.load::<(BN, One)>((pn, g));
        acc += (codes * x.load::<(One, C<32>)>((0, g))).sum::<1>() * s;
    }
    y.store((pn, 0), acc);
}

#[test]
fn dequant_matvec_agrees() {
    let (n, g) = (8, 3);
    let w = Tensor::new(&[n, g * 16], |i| ((i * 37 + 11) % 256) as u8);
    let s = Tensor::new(&[n, g], random_f32(3));
    let x = Tensor::new(&[1, g * 32], random_f32(4));
    let mut y = Tensor::<f32>::poisoned(&[n, 1]);
    dequant_matvec::launch(&w, &s, &x, &mut y).dims(4).grid(2).run(&Oracle::default()).unwrap();
    let want = (0..n).map(|r| {
        (0..g)
            .map(|k| {
                let group: f64 = (0..16)
                    .map(|i| {
                        let q = w.data[r * g * 16 + k * 16 + i];
                        let (lo, hi) = ((q & 15) as f64 - 8.0, (q >> 4) as f64 - 8.0);
                        lo * x.data[k * 32 + i] as f64 + hi * x.data[k * 32 + 16 + i] as f64
                    })
                    .sum();
                group * s.data[r * g + k] as f64
            })
            .sum()
    });
    close(y.data.iter().map(|v| *v as f64), want, 1e-4);
}

/// Reductions of a vector leave one answer, of shape `(One,)`: a condition as it is, and a scalar through `item`.
#[kernel]
fn answers<N: Dim>(x: View<f32, 1>, y: ViewMut<i32, 1>) {
    let t = x.load::<(N,)>(0);
    let mut n = scalar(0);
    if (t > 0.0).any::<0>() {
        n = n + 1;
    }
    if !(t > 0.0).all::<0>().item() && t.expand::<0>().sum::<1>().item() < 0.0 {
        n = n + 2;
    }
    let mut left = t.reshape::<(One, N)>();
    while (left > 0.0).any::<1>() {
        left = left - 1.0;
        n = n + 10;
    }
    y.set(0, n);
}

#[test]
fn one_answer_of_any_rank_is_a_condition() {
    for (values, want) in [([-1.0, -2.0, -3.0], 2), ([2.5, 1.0, 0.5], 31), ([1.0, -4.0, 1.0], 13)] {
        let x = Tensor::new(&[3], |i| values[i]);
        let mut y = Tensor::<i32>::poisoned(&[1]);
        answers::launch(&x, &mut y).dims(3).grid(1).run(&Oracle::default()).unwrap();
        assert_eq!(y.data, [want], "{values:?}");
    }
}
