//! Dropout: each element is zeroed with probability p, the others are divided by 1 − p. Random numbers without state.

use std::time::{Duration, Instant};
use tegula::prelude::*;

#[kernel]
pub fn dropout<N: Dim>(x: View<f32, 1>, y: ViewMut<f32, 1>, p: Scalar<f32>, seed: Scalar<u64>) {
    let i = program_id(0);
    let element = iota_of::<u64, N>() + i.cast::<u64>() * N::extent();
    let keep = rand(seed, element) >= p;
    y.store(i, select(keep, x.load::<(N,)>(i) / (1.0 - p), 0.0));
}

/// Philox 4×32-10 in plain Rust: the first random word.
fn philox(seed: u64, counter: u64) -> u32 {
    let mut c = [counter as u32, (counter >> 32) as u32, 0, 0];
    let mut k = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    c[0]
}

pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stream = Device::cpu().stream();
    let (n, p, seed) = (1_000_003, 0.3f32, 0x1234_5678_9abc_def0);
    let x = Tensor::<f32>::from_fn([n], |i| (i[0] % 1000) as f32 * 0.1 + 1.0)?;
    let mut y = Tensor::<f32>::zeros([n])?;

    let mut time = Duration::ZERO;
    for _ in 0..2 {
        // The first launch compiles the kernel.
        let begun = Instant::now();
        dropout::launch(&x, &mut y, p, seed).dims(1024).run(&stream)?;
        time = begun.elapsed();
    }

    let (mut error, mut kept) = (0.0f32, 0);
    for (i, (x, y)) in x.as_slice().iter().zip(y.as_slice()).enumerate() {
        let keep = (philox(seed, i as u64) >> 8) as f32 / 16_777_216.0 >= p;
        kept += usize::from(keep);
        error = error.max((y - if keep { x / (1.0 - p) } else { 0.0 }).abs());
    }
    let share = kept as f32 / n as f32;
    println!("dropout: kept {share:.4} of {n} elements, largest error {error:e}, {time:.0?}");
    assert_eq!(error, 0.0, "the same bits on every device");
    assert!((share - (1.0 - p)).abs() < 0.002);
    Ok(())
}
