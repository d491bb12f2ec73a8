//! The conformance rows, and random programs: compiled code must do what the oracle does.

use crate::harness::{call, figure, targets};
use std::ops::Range;
use tegula_codegen::service::answer;
use tegula_ir::{
    Kernel, OpKind,
    protocol::{Emit, Meta, Request, Response, SiteKind},
    testing::{
        Arg, conformance,
        random::{Config, Coverage, program},
    },
};

/// Runs a kernel natively: an executor for [`tegula_ir::testing::Row::run`].
fn on_cpu(target: &str, kernel: &Kernel, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let request = Request { kernel: kernel.text(), target: target.into(), emit: Emit::Artifact, checked };
    let (code, meta) = match answer(&request) {
        Response::Ok { bytes, meta } => (bytes, meta),
        Response::Err { stage, message, loc } => return Err(format!("{stage} failed: {message} at {loc:?}")),
    };
    run(&code, &meta, args, grid, checked)
}

/// Runs compiled code; an error is a fault that it reported.
pub fn run(code: &[u8], meta: &Meta, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let mut words: Vec<u64> = vec![];
    for arg in args.iter_mut() {
        match arg {
            Arg::View(b) => {
                words.push(b.bytes_mut().as_mut_ptr() as u64);
                words.extend(b.extents.iter().chain(&b.strides).map(|v| *v as u64));
            }
            Arg::Scalar(s) => words.push(s.bits),
            Arg::Packed(bytes, k, n, ..) => words.extend([bytes.as_ptr() as u64, *k as u64, *n as u64]),
        }
    }
    let reports = call(code, meta, &words, grid.map(|g| g as i32), checked);
    let fault = |r: &&(u32, u64, i64)| !matches!(meta.sites[r.0 as usize].kind, SiteKind::Print { .. });
    reports.iter().find(fault).map_or(Ok(()), |r| Err(format!("{:?} in program {}", meta.sites[r.0 as usize], r.1)))
}

#[test]
fn conformance_rows_hold() {
    let rows = conformance::rows();
    for target in targets() {
        let failures: Vec<String> =
            rows.iter().filter_map(|r| r.run(&mut |k, a, g, c| on_cpu(target, k, a, g, c)).err()).collect();
        figure(&format!("conformance rows that hold, {target}"), rows.len() - failures.len(), rows.len());
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

/// Random programs of these seeds on every target.
fn agree(seeds: Range<u64>) {
    let mut coverage = Coverage::default();
    let mut failures = vec![];
    for seed in seeds.clone() {
        let row = program(seed, &Config::default()).expect().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        coverage.add(&row.kernel);
        for target in targets() {
            if let Err(e) = row.run(&mut |k, a, g, c| on_cpu(target, k, a, g, c)) {
                failures.push(format!("seed {seed}, {target}: {e}"));
            }
        }
    }
    println!("seeds {seeds:?}: {}", coverage.summary());
    let runs = targets().len() * seeds.count();
    figure("runs of random programs that agree with the oracle", runs - failures.len(), runs);
    // All that CPUs have, but for `print`, which changes nothing that could be compared.
    figure("ops that appear in random programs", OpKind::ALL.len() - coverage.missing().len(), 80);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// `TEGULA_SEEDS=FIRST..LAST` runs others than the usual few.
#[test]
fn random_programs_agree() {
    let seeds = std::env::var("TEGULA_SEEDS").unwrap_or_else(|_| "0..16".into());
    let (first, last) = seeds.split_once("..").expect("TEGULA_SEEDS is FIRST..LAST");
    agree(first.parse().unwrap()..last.parse().unwrap());
}

#[test]
#[ignore = "long"]
fn many_random_programs_agree() {
    agree(0..400);
}
