//! The conformance rows, and random programs: PTX on the emulator must do what the oracle does.

use crate::harness::{CONFIG, TARGETS, on_gpu};
use tegula_ir::testing::{
    conformance,
    random::{Coverage, program},
};

#[test]
fn conformance_rows_hold() {
    let rows = conformance::rows();
    let only = std::env::var("TEGULA_ROWS").unwrap_or_default();
    for target in TARGETS {
        let failures: Vec<String> = rows
            .iter()
            .filter(|r| r.id.starts_with(&only))
            .filter_map(|r| r.run(&mut |k, a, g, c| on_gpu(target, k, a, g, c)).err())
            .collect();
        assert!(
            failures.is_empty(),
            "{target}: {} of {} rows fail:\n{}",
            failures.len(),
            rows.len(),
            failures.join("\n")
        );
        println!("{target}: {} conformance rows hold", rows.len());
    }
}

/// `TEGULA_SEEDS=FIRST..LAST` runs others than the usual few.
#[test]
fn random_programs_agree() {
    let seeds = std::env::var("TEGULA_SEEDS").unwrap_or_else(|_| "0..16".into());
    let (first, last) = seeds.split_once("..").expect("TEGULA_SEEDS is FIRST..LAST");
    let mut coverage = Coverage::default();
    let mut failures = vec![];
    for seed in first.parse::<u64>().unwrap()..last.parse().unwrap() {
        let mut row = program(seed, &CONFIG).expect().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        coverage.add(&row.kernel);
        // One, two, four and eight warps in turn; both targets.
        row.kernel.set_warps(1 << (seed % 4));
        let target = TARGETS[(seed / 4 % 2) as usize];
        if let Err(e) = row.run(&mut |k, a, g, c| on_gpu(target, k, a, g, c)) {
            failures.push(format!("seed {seed}, {target}: {e}"));
        }
    }
    println!("seeds {seeds}: {}", coverage.summary());
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
