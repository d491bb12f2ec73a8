//! Causal attention without a matrix of scores: several tiles carried by one loop, masks, transposes, two products.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn flash<BM: Dim, BN: Dim, D: Dim>(
    q: View<f32, 3>,
    k: View<f32, 3>,
    v: View<f32, 3>,
    o: ViewMut<f32, 3>,
    scale: Scalar<f32>,
) {
    let (block, head) = (program_id(0), program_id(1));
    let query = q.load::<(One, BM, D)>((head, block, 0)).squeeze::<0>() * scale;
    let rows = (iota::<BM>() + block * BM::extent()).expand::<1>();

    let mut m = full::<f32, (BM, One)>(f32::NEG_INFINITY); // the largest score so far
    let mut l = zeros::<f32, (BM, One)>(); // the sum of exponentials
    let mut acc = zeros::<f32, (BM, D)>(); // the sum of values, so weighted
    let end = min((block + 1) * BM::extent(), k.dim::<1>());
    for j in 0..cdiv(end, BN::extent()) {
        let keys = k.load::<(One, BN, D)>((head, j, 0)).squeeze::<0>();
        let columns = (iota::<BN>() + j * BN::extent()).expand::<0>();
        let s = select(columns <= rows, dot(query, keys.t(), zeros()), f32::NEG_INFINITY);

        let largest = m.maximum(s.max::<1>());
        let p = (s - largest).exp();
        let keep = (m - largest).exp(); // corrects what was summed with another maximum
        let values = v.load::<(One, BN, D)>((head, j, 0)).squeeze::<0>();
        l = l * keep + p.sum::<1>();
        acc = dot(p, values, acc * keep);
        m = largest;
    }
    o.store((head, block, 0), (acc / l).expand::<0>());
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let (heads, n, d) = (3, 311, 64);
    let scale = 1.0 / (d as f32).sqrt();
    let input = |seed: usize| {
        Tensor::<f32>::from_fn([heads, n, d], |i| {
            (((i[0] * n + i[1]) * d + i[2] + seed) * 7919 % 1009) as f32 / 252.0 - 2.0
        })
    };
    let (q, k, v) = (input(1)?, input(22)?, input(333)?);
    let mut o = Tensor::<f32>::zeros([heads, n, d])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        flash::launch(&q, &k, &v, &mut o, scale).dims(32, 64, d).grid([n.div_ceil(32), heads]).run(&stream)?;
        time = begun.elapsed();
    }

    let row = |t: &Tensor<f32>, h: usize, i: usize| -> Vec<f64> {
        t.as_slice()[(h * n + i) * d..][..d].iter().map(|x| f64::from(*x)).collect()
    };
    let mut error = 0.0f64;
    for (h, i) in (0..heads).flat_map(|h| (0..n).map(move |i| (h, i))) {
        let (query, got) = (row(&q, h, i), row(&o, h, i));
        let score = |j: usize| query.iter().zip(row(&k, h, j)).map(|(a, b)| a * b).sum::<f64>() * f64::from(scale);
        let p: Vec<f64> = (0..=i).map(|j| score(j).exp()).collect();
        let sum: f64 = p.iter().sum();
        let mut want = vec![0.0; d];
        for (j, p) in p.iter().enumerate() {
            want.iter_mut().zip(row(&v, h, j)).for_each(|(w, v)| *w += p / sum * v);
        }
        error = got.iter().zip(&want).map(|(g, w)| (g - w).abs()).fold(error, f64::max);
    }
    println!("flash_attention: {heads} heads, {n} tokens of {d}, largest error {error:.1e}, {time:.0?}");
    assert!(error < 1e-5);
    Ok(())
}
