//! What a launch costs: an empty kernel of 64 programs and two arguments, launched as programs launch kernels.

use std::time::{Duration, Instant};

use tegula::{device::CpuOptions, pool::PoolOptions, prelude::*};

use crate::Outcome;
use crate::clock::median;
use crate::report::Gate;

#[kernel]
fn nothing<N: Dim>(_x: View<f32, 1>, _y: ViewMut<f32, 1>) {
    let _ = zeros::<f32, (N,)>();
}

const PROGRAMS: usize = 64;

/// With workers that spin, and that are parked.
pub fn gates() -> Outcome<[Gate; 2]> {
    let threads = PoolOptions::default().threads.max(2);
    let device = |spin| {
        Device::cpu_with(CpuOptions { pool: PoolOptions { threads, spin, pin: false }, ..CpuOptions::default() })
    };
    let x = Tensor::<f32>::zeros([1024])?;
    let mut y = Tensor::<f32>::zeros([1024])?;

    // Several launches a sample, since reading the clock costs as much as one.
    const EACH: u32 = 100;
    let spinning = device(1_000_000);
    let mut times = vec![];
    for _ in 0..4000 {
        let start = Instant::now();
        for _ in 0..EACH {
            nothing::launch(&x, &mut y).dims(16).grid(PROGRAMS).run(&spinning)?;
        }
        times.push(start.elapsed().as_secs_f64() / f64::from(EACH));
    }
    drop(spinning);
    let gate = |workers: &str, times: Vec<f64>, most: f64| {
        Gate::at_most(format!("empty launch, workers {workers}, {threads} threads"), median(times) * 1e6, "µs", most)
    };
    let spinning = gate("spinning", times, 1.0);

    let parked = device(0);
    let mut times = vec![];
    for _ in 0..800 {
        nothing::launch(&x, &mut y).dims(16).grid(PROGRAMS).run(&parked)?;
        std::thread::sleep(Duration::from_millis(1));
        let start = Instant::now();
        nothing::launch(&x, &mut y).dims(16).grid(PROGRAMS).run(&parked)?;
        times.push(start.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok([spinning, gate("parked", times, 12.0)])
}
