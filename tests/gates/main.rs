//! The speed gates of the CPU, and of the host's part in what GPUs do, `./x bench`: each is a ratio of figures taken beside
//! each other in one run, so that it holds on a busy machine too. Medians; one thread, in thread CPU time, where the gate is
//! not about threads or launches.
//!
//! Arguments choose gates: those whose names contain one of them, and what is measured together with those.
//!
//! `serving` is another matter and runs only when it is named: the server beside llama.cpp's; see there.
//!
//! Ends with exit code 1 if a gate fails. Those that need OpenBLAS are skipped, and counted, where there is none.

mod blas;
mod clock;
mod cuda;
mod launch;
mod memory;
mod peers;
mod products;
mod report;
mod serving;

use std::process::ExitCode;

use tegula::{
    Device,
    device::{CpuOptions, Level},
    pool::PoolOptions,
};

/// What measuring gives.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    if cuda::is_child() {
        return cuda::child();
    }
    // What would make OpenBLAS another than the one it is by itself.
    for name in ["OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"] {
        // SAFETY: no other thread is running yet.
        unsafe { std::env::remove_var(name) };
    }
    match measure() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Outcome<bool> {
    // What the arguments choose: each part of the name of a gate, without any all gates.
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("serving", loads)) = chosen.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        let gates = serving::gates(loads)?;
        println!();
        return Ok(report::print(&gates));
    }
    let level = Level::choose()?;
    println!("kernels for cpu:{}, {} CPUs", level.name(), PoolOptions::default().threads);
    let peers = blas::Blas::find();
    for peer in &peers {
        println!("{}", peer.config);
    }
    if peers.is_empty() {
        tegula_tests::skip("no OpenBLAS to compare with: `./x bench peers` installs it");
    }
    clock::ask_for_priority();
    let device = |threads| {
        let pool = PoolOptions { threads, ..PoolOptions::default() };
        Device::cpu_with(CpuOptions { pool, ..CpuOptions::default() })
    };
    let one = device(1);
    let wants = |name: &str| chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str()));
    let mut gates = vec![];
    if wants("f32 block of products / fma loop") {
        gates.push(products::micro_kernel(&one)?);
    }
    for n in [512, 1024] {
        if wants(&format!("GEMM {n} / OpenBLAS")) || wants(&format!("GEMM {n}, B packed / OpenBLAS")) {
            gates.extend(products::against_blas(&one, n, &peers)?);
        }
    }
    if ["softmax, 256 MB", "RMS norm, 256 MB", "vector add, 256 MB"].into_iter().any(wants) {
        gates.extend(memory::gates(&one)?);
    }
    if ["empty launch, workers spinning", "empty launch, workers parked"].into_iter().any(wants) {
        gates.extend(launch::gates()?);
    }
    if wants(cuda::GATE) {
        gates.push(cuda::gate()?);
    }
    if wants("GEMM 1024, B packed, 2 threads / 1") {
        gates.push(products::two_threads(&one, &device(2))?);
    }
    if gates.is_empty() {
        return Err(format!("no gate's name contains {}", chosen.join(" or ")).into());
    }
    println!();
    Ok(report::print(&gates))
}
