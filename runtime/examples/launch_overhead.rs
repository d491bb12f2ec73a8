//! What a launch costs: an empty kernel, launched as programs launch kernels, with workers that spin and that are parked;
//! and what a second thread brings on work that is large.
//!
//!     cargo run --release --example launch_overhead

use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use tegula::{
    device::CpuOptions,
    pool::{Pool, PoolOptions},
    prelude::*,
};

#[kernel]
fn nothing<N: Dim>(_x: View<f32, 1>, _y: ViewMut<f32, 1>) {
    let _ = zeros::<f32, (N,)>();
}

#[kernel]
fn busy<N: Dim>(rounds: Scalar<i32>, y: ViewMut<f32, 1>) {
    let mut x = y.load::<(N,)>((program_id(0),));
    for _ in range(0, rounds) {
        x = x * 0.999 + 0.5;
    }
    y.store((program_id(0),), x);
}

fn device(threads: usize, spin: u32) -> Device {
    Device::cpu_with(CpuOptions { pool: PoolOptions { threads, spin, pin: false }, ..CpuOptions::default() })
}

/// Median and 90th percentile of the time of `f`, after `pause`.
fn time(rounds: usize, pause: Duration, mut f: impl FnMut()) -> (Duration, Duration) {
    let mut times: Vec<_> = (0..rounds)
        .map(|_| {
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
            let begun = Instant::now();
            f();
            begun.elapsed()
        })
        .collect();
    times.sort();
    (times[rounds / 2], times[rounds * 9 / 10])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let x = Tensor::<f32>::zeros([1024])?;
    let mut y = Tensor::<f32>::zeros([1024])?;
    println!("{:<46} {:>10} {:>10}", "empty kernel, 2 arguments", "median", "90 %");
    let all = PoolOptions::default().threads;
    for (threads, spin, pause, what) in [
        (1, 4000, Duration::ZERO, "spinning"),
        (2, 20_000, Duration::ZERO, "spinning"),
        (all, 20_000, Duration::ZERO, "spinning"),
        (2, 0, Duration::from_millis(1), "parked"),
    ] {
        let device = device(threads, spin);
        for grid in [1usize, 64] {
            let mut launch = || nothing::launch(&x, &mut y).dims(16).grid(grid).run(&device);
            (0..1000).try_for_each(|_| launch())?;
            // Several launches a measurement, since reading the clock costs as much as one.
            let each = if pause.is_zero() { 100 } else { 1 };
            let (median, late) = time(2000, pause, || (0..each).for_each(|_| drop(black_box(launch()))));
            let label = format!("{threads} threads, workers {what}, grid {grid}");
            println!("{label:<46} {:>7} ns {:>7} ns", median.as_nanos() / each, late.as_nanos() / each);
        }
    }

    let pool = Pool::new(&PoolOptions { threads: 2, spin: 20_000, pin: false })?;
    let (median, late) = time(5000, Duration::ZERO, || {
        for _ in 0..100 {
            let _ = pool.run(64, 0, &|programs, _| {
                black_box(programs);
            });
        }
    });
    println!(
        "{:<46} {:>7} ns {:>7} ns",
        "the pool alone, 2 threads, 64 programs",
        median.as_nanos() / 100,
        late.as_nanos() / 100
    );

    println!("\n{:<46} {:>10} {:>10} {:>8}", "64 programs of equal work", "1 thread", "2 threads", "ratio");
    let (one, two) = (device(1, 4000), device(2, 4000));
    for rounds in [100, 1000, 10_000, 100_000] {
        let mut ratios = vec![];
        for _ in 0..21 {
            let mut on = |device: &Device| -> Result<f64, LaunchError> {
                let begun = Instant::now();
                busy::launch(rounds, &mut y).dims(16).run(device)?;
                Ok(begun.elapsed().as_secs_f64() * 1e6)
            };
            let (a, b) = (on(&one)?, on(&two)?);
            ratios.push((a / b, a, b));
        }
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, a, b) = ratios[10];
        println!("{:<46} {a:>7.1} µs {b:>7.1} µs {ratio:>8.2}", format!("{rounds} rounds each"));
    }
    Ok(())
}
