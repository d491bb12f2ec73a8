//! c = a + b: tiles, positions, edges.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn vector_add<N: Dim>(a: View<f32, 1>, b: View<f32, 1>, c: ViewMut<f32, 1>) {
    let i = program_id(0);
    let sum = a.load::<(N,)>(i) + b.load::<(N,)>(i);
    c.store(i, sum);
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let n = 1_000_003; // no multiple of anything
    let a = Tensor::<f32>::from_fn([n], |i| (i[0] % 1000) as f32 * 0.1)?;
    let b = Tensor::<f32>::from_fn([n], |i| 1.0 / (i[0] + 1) as f32)?;
    let mut c = Tensor::<f32>::zeros([n])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        vector_add::launch(&a, &b, &mut c).dims(1024).run(&stream)?;
        time = begun.elapsed();
    }

    let (a, b) = (a.as_slice(), b.as_slice());
    let errors = c.as_slice().iter().enumerate().map(|(i, c)| (c - (a[i] + b[i])).abs());
    let error = errors.fold(0.0, f32::max);
    println!("vector_add: {n} elements, largest error {error:e}, {time:.0?}");
    assert_eq!(error, 0.0, "a sum of two numbers is rounded once, here as there");
    Ok(())
}
