//! Layer norm: (x − mean) / sqrt(variance + eps) · weight + bias over each row. Scalar arguments, a helper, two reductions.

use std::time::{Duration, Instant};
use tegula::prelude::*;

/// The mean along a row of n numbers; what lies past them must be 0.
fn mean<N: Dim>(x: Tile<f32, (One, N)>, n: Scalar<f32>) -> Tile<f32, (One, One)> {
    x.sum::<1>() / n
}

#[kernel]
pub fn layer_norm<N: Dim>(
    x: View<f32, 2>,
    weight: View<f32, 1>,
    bias: View<f32, 1>,
    y: ViewMut<f32, 2>,
    eps: Scalar<f32>,
) {
    let row = program_id(0);
    let n = x.dim::<1>().cast::<f32>();
    let inside = iota::<N>().expand::<0>() < x.dim::<1>();

    let t = x.load::<(One, N)>((row, 0));
    let t = select(inside, t - mean(t, n), 0.0);
    let variance = mean(t * t, n);
    let (w, b) = (weight.load::<(N,)>(0).expand::<0>(), bias.load::<(N,)>(0).expand::<0>());
    y.store((row, 0), t / (variance + eps).sqrt() * w + b);
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let (rows, n, eps) = (1151, 777, 1e-5);
    let x = Tensor::<f32>::from_fn([rows, n], |i| ((i[0] * 13 + i[1] * 29) % 101) as f32 * 0.1 + 3.0)?;
    let weight = Tensor::<f32>::from_fn([n], |i| 1.0 + (i[0] % 7) as f32 * 0.1)?;
    let bias = Tensor::<f32>::from_fn([n], |i| (i[0] % 5) as f32 * 0.2 - 0.4)?;
    let mut y = Tensor::<f32>::zeros([rows, n])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        layer_norm::launch(&x, &weight, &bias, &mut y, eps).dims(1024).grid(rows).run(&stream)?;
        time = begun.elapsed();
    }

    let mut error = 0.0f64;
    for (x, y) in x.as_slice().chunks(n).zip(y.as_slice().chunks(n)) {
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
        let variance = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
        for (i, y) in y.iter().enumerate() {
            let normed = (f64::from(x[i]) - mean) / (variance + f64::from(eps)).sqrt();
            let want = normed * f64::from(weight.as_slice()[i]) + f64::from(bias.as_slice()[i]);
            error = error.max((f64::from(*y) - want).abs());
        }
    }
    println!("layer_norm: {rows} × {n}, largest error {error:.1e}, {time:.0?}");
    assert!(error < 2e-5);
    Ok(())
}
