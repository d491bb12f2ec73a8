//! What a launch costs: an empty kernel of 64 programs and two arguments, launched as programs launch kernels.
//!
//! The runtime finds out that nothing is gained by sharing so little work. What it would cost to share it nevertheless, in
//! as many chunks as a large launch, stands beside it: the pool alone with 64 programs that it does not know.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use tegula::{
    device::CpuOptions,
    pool::{Pool, PoolOptions},
    prelude::*,
};

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
    let options = |spin| PoolOptions { threads, spin, pin: false };
    let device = |spin| Device::cpu_with(CpuOptions { pool: options(spin), ..CpuOptions::default() });
    let shared = |pool: &Pool| {
        pool.run(PROGRAMS as u64, 0, &|programs, _| {
            black_box(programs);
        })
    };
    let x = Tensor::<f32>::zeros([1024])?;
    let mut y = Tensor::<f32>::zeros([1024])?;
    let mut launch = |device: &Device| nothing::launch(&x, &mut y).dims(16).grid(PROGRAMS).run(device);

    let (spinning, pool) = (device(1_000_000), Pool::new(&options(1_000_000))?);
    let ours = many(|| launch(&spinning))?;
    drop(spinning);
    let beside = many(|| shared(&pool))?;
    drop(pool);
    let spinning = gate("spinning", threads, ours, beside, 1.0);

    let (parked, pool) = (device(0), Pool::new(&options(0))?);
    let ours = after_a_pause(|| launch(&parked))?;
    let beside = after_a_pause(|| shared(&pool))?;
    Ok([spinning, gate("parked", threads, ours, beside, 12.0)])
}

/// Seconds for one of many launches in a row.
fn many<E>(mut launch: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    // Several a sample, since reading the clock costs as much as one.
    const EACH: u32 = 100;
    let mut times = vec![];
    for _ in 0..4000 {
        let start = Instant::now();
        (0..EACH).try_for_each(|_| launch())?;
        times.push(start.elapsed().as_secs_f64() / f64::from(EACH));
    }
    Ok(median(times))
}

/// Seconds for a launch that finds the workers parked.
fn after_a_pause<E>(mut launch: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let mut times = vec![];
    for _ in 0..800 {
        launch()?;
        std::thread::sleep(Duration::from_millis(1));
        let start = Instant::now();
        launch()?;
        times.push(start.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(median(times))
}

fn gate(workers: &str, threads: usize, ours: f64, shared: f64, most: f64) -> Gate {
    let name = format!("empty launch, workers {workers}, {threads} threads");
    let gate = Gate::at_most(name, ours * 1e6, "µs", most);
    Gate { beside: format!("{:.2} µs if shared", shared * 1e6), ..gate }
}
