//! The matrix: every kernel of the library and of the examples on every executor, beside references in float64 that share
//! nothing with it, on awkward sizes. A kernel without a case fails, and so does docs/kernels.md if its table is not the
//! one that comes out here (`UPDATE_EXPECT=1` writes it).

mod activations;
mod choice;
mod dense;
mod examples;
mod gguf;
mod measure;
mod paged;
mod table;
mod weights;

use crate::support::ORACLE;
use measure::Measure;
use std::sync::LazyLock;
use tegula::{
    device::{Arch, Completion, CpuOptions, EmulatedOptions, Level},
    prelude::*,
};

/// A kernel, for one choice of element types or settings.
pub struct Case {
    /// Its name in the registry, or that of the example.
    kernel: &'static str,
    /// The choice; empty where there is none.
    of: &'static str,
    /// In what errors are counted; empty where bits must be equal.
    unit: &'static str,
    /// How many of these are allowed.
    bound: &'static str,
    /// Runs it at several sizes and measures what comes out.
    run: fn(&Stream, &mut Measure),
}

/// All cases, in the order of the table.
fn cases() -> Vec<&'static Case> {
    [dense::CASES, activations::CASES, weights::CASES, paged::CASES, choice::CASES, examples::CASES]
        .into_iter()
        .flatten()
        .collect()
}

/// A column of the table: devices that must give the same bits.
struct Executor {
    name: &'static str,
    devices: Vec<Device>,
}

/// Oracle, CPU at each level that this machine has, each emulated GPU with early and with late completion.
static EXECUTORS: LazyLock<Vec<Executor>> = LazyLock::new(|| {
    let cpu = |level: Level| {
        let mut options = CpuOptions { level: Some(level), ..CpuOptions::default() };
        options.pool.threads = 2;
        Device::cpu_with(options)
    };
    let levels: Vec<Device> = Level::ALL.iter().filter(|l| l.is_supported()).map(|l| cpu(*l)).collect();
    let mut all = vec![
        Executor { name: "oracle", devices: vec![ORACLE.device().clone()] },
        Executor { name: "CPU", devices: levels },
    ];
    all.extend(Arch::ALL.iter().map(|arch| {
        // Each launch runs twice, and it is an error if its bits depend on when asynchronous results arrive.
        let options = EmulatedOptions { completion: Completion::Both, ..EmulatedOptions::default() };
        let device = Device::emulated_with(arch.name(), options).expect("an architecture that is emulated");
        Executor { name: arch.name(), devices: vec![device] }
    }));
    all
});

/// What a case gave on an executor: the worst of its devices, which have the same bits.
fn measure(case: &Case, executor: &Executor) -> Measure {
    let measured: Vec<Measure> = executor
        .devices
        .iter()
        .map(|device| {
            let mut m = Measure::new(&format!("{} {}, {}", case.kernel, case.of, device.name()));
            (case.run)(&device.stream(), &mut m);
            m
        })
        .collect();
    let first = measured[0].bits();
    let mut merged = measured.into_iter().reduce(|mut all, one| {
        let same = one.bits() == first;
        all.require(same, || format!("{}: other bits than on {}", one.name, executor.devices[0].name()));
        all.merge(one);
        all
    });
    merged.take().expect("an executor has devices")
}

#[test]
fn every_kernel_on_every_executor() {
    let (cases, executors) = (cases(), &*EXECUTORS);
    let mut missing: Vec<&str> = tegula_kernels::registry::KERNELS.iter().map(|k| k.name).collect();
    missing.extend(examples::SOURCES.iter().map(|s| s.0));
    missing.retain(|name| cases.iter().all(|c| c.kernel != *name));
    assert!(missing.is_empty(), "kernels without a case in kernels/tests/library/matrix: {}", missing.join(", "));

    let columns: Vec<Vec<Measure>> = std::thread::scope(|s| {
        let columns = executors.iter().map(|e| s.spawn(|| cases.iter().map(|c| measure(c, e)).collect()));
        let columns: Vec<_> = columns.collect();
        columns.into_iter().map(|c| c.join().expect("no case panics")).collect()
    });
    let failures: Vec<&str> = columns.iter().flatten().flat_map(Measure::failures).collect();
    for column in &columns {
        // Everywhere as much as on the oracle, and something.
        for ((case, measured), oracle) in cases.iter().zip(column).zip(&columns[0]) {
            let runs = measured.values / oracle.values.max(1);
            assert!(runs > 0 && measured.values == runs * oracle.values, "{} was not compared", case.kernel);
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let names: Vec<&str> = executors.iter().map(|e| e.name).collect();
    println!("{}", table::exact(&names, &cases, &columns));
    table::same_in_the_docs(&table::rounded(&names, &cases, &columns));
}

/// Every example has its file here.
#[test]
fn every_example_is_known() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let mut known: Vec<&str> = examples::SOURCES.iter().map(|s| s.0).collect();
    known.sort();
    assert_eq!(found, known);
}
