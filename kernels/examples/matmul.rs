//! C = A·B by tiles: a loop that carries a tile, `dot`, and an order of programs that is kind to the cache.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn matmul<T: Float, BM: Dim, BN: Dim, BK: Dim>(a: View<T, 2>, b: View<T, 2>, c: ViewMut<T, 2>) {
    let (pm, pn) = grouped::<BM, BN>(program_id(0), &c, 8);
    let mut acc = zeros::<f32, (BM, BN)>();
    for k in a.tiles_along::<1, BK>() {
        let (at, bt) = (a.load::<(BM, BK)>((pm, k)), b.load::<(BK, BN)>((k, pn)));
        acc = dot(at, bt, acc);
    }
    c.store((pm, pn), acc.cast());
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let (m, n, k) = (383, 517, 229);
    let a = Tensor::<f32>::from_fn([m, k], |i| ((i[0] * 7 + i[1] * 3) % 23) as f32 * 0.1 - 1.0)?;
    let b = Tensor::<f32>::from_fn([k, n], |i| ((i[0] * 5 + i[1] * 11) % 19) as f32 * 0.1 - 1.0)?;
    let mut c = Tensor::<f32>::zeros([m, n])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        matmul::launch(&a, &b, &mut c).dims(96, 64, 128).run(&stream)?;
        time = begun.elapsed();
    }

    let (a, b) = (a.as_slice(), b.as_slice());
    let mut error = 0.0f64;
    for (i, c) in c.as_slice().iter().enumerate() {
        let want: f64 = (0..k).map(|q| f64::from(a[i / n * k + q]) * f64::from(b[q * n + i % n])).sum();
        error = error.max((f64::from(*c) - want).abs());
    }
    println!("matmul: {m} × {n} × {k}, largest error {error:.1e}, {time:.0?}");
    assert!(error < 1e-4);
    Ok(())
}
