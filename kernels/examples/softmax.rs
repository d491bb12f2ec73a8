//! Softmax of each row in one pass over memory: shapes as types, reductions, a mask at the edge.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn softmax<N: Dim>(x: View<f32, 2>, y: ViewMut<f32, 2>) {
    let row = program_id(0);
    let t = x.load::<(One, N)>((row, 0));
    let inside = iota::<N>().expand::<0>() < x.dim::<1>();
    let t = select(inside, t, f32::NEG_INFINITY);
    let e = (t - t.max::<1>()).exp();
    y.store((row, 0), e / e.sum::<1>());
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let (rows, columns) = (1823, 781);
    let x = Tensor::<f32>::from_fn([rows, columns], |i| ((i[0] * 31 + i[1] * 17) % 199) as f32 * 0.05 - 5.0)?;
    let mut y = Tensor::<f32>::zeros([rows, columns])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        softmax::launch(&x, &mut y).dims(1024).grid(rows).run(&stream)?;
        time = begun.elapsed();
    }

    let mut error = 0.0f64;
    for (x, y) in x.as_slice().chunks(columns).zip(y.as_slice().chunks(columns)) {
        let e: Vec<f64> = x.iter().map(|x| f64::from(*x).exp()).collect();
        let sum: f64 = e.iter().sum();
        for (e, y) in e.iter().zip(y) {
            error = error.max((f64::from(*y) / (e / sum) - 1.0).abs());
        }
    }
    println!("softmax: {rows} × {columns}, largest relative error {error:.1e}, {time:.0?}");
    assert!(error < 1e-5);
    Ok(())
}
