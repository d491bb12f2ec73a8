//! Random programs: what the oracle computes, every executor must.

use crate::{emulated, executors, figure::figure, parallel};
use std::{collections::BTreeMap, ops::Range};
use tegula_ir::{
    Elem, Kernel, OpKind,
    layout::Layout,
    testing::random::{Config, Coverage, program},
};

/// Programs of these seeds on every executor. Packed weights lie as GPUs read them; every fourth program has another of the
/// same seed beside it whose weights are panels, for CPUs.
fn agree(seeds: Range<u64>) {
    let executors = executors();
    const PANELS: Config = Config { statements: 40, allow: |_| true, elems: |_| true, layouts: &[Layout::Panel16] };
    type Found = (Vec<Kernel>, Vec<(usize, Result<(), String>)>);
    let found: Vec<Found> = parallel(seeds.clone(), |seed| {
        let made = |config: &Config| program(seed, config).expect().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let (mut kernels, mut outcomes) = (vec![], vec![]);
        let panels = (seed % 4 == 0).then_some(&PANELS);
        for config in [&emulated::CONFIG].into_iter().chain(panels) {
            let mut row = made(config);
            // One, two, four and eight warps in turn.
            row.kernel.set_warps(1 << (seed / 4 % 4));
            for (i, e) in executors.iter().enumerate() {
                let reads_panels = e.name == "oracle" || e.name.starts_with("cpu:");
                if config.layouts == emulated::CONFIG.layouts || reads_panels {
                    let outcome = row.run(&mut |k, a, g, c| (e.run)(k, a, g, c));
                    outcomes.push((i, outcome.map_err(|e| format!("seed {seed}: {e}"))));
                }
            }
            kernels.push(row.kernel);
        }
        (kernels, outcomes)
    });

    let mut coverage = Coverage::default();
    found.iter().flat_map(|f| &f.0).for_each(|k| coverage.add(k));
    println!("seeds {seeds:?}: {}", coverage.summary());
    let mut by_elem: BTreeMap<Elem, (usize, usize)> = BTreeMap::new();
    for ((_, elem), count) in &coverage.pairs {
        let (ops, uses) = by_elem.entry(*elem).or_default();
        (*ops, *uses) = (*ops + 1, *uses + count);
    }
    let by_elem: Vec<String> = by_elem.iter().map(|(e, (ops, uses))| format!("{e} {ops} ops {uses} times")).collect();
    println!("element types: {}", by_elem.join(", "));
    let (mut failures, mut all) = (vec![], 0);
    for (i, e) in executors.iter().enumerate() {
        let outcomes = || found.iter().flat_map(|f| &f.1).filter(|o| o.0 == i);
        let wrong: Vec<String> =
            outcomes().filter_map(|o| o.1.as_ref().err()).map(|o| format!("{}: {o}", e.name)).collect();
        let runs = outcomes().count();
        println!("{}: {} of {runs} runs agree", e.name, runs - wrong.len());
        figure(&format!("random programs that agree with the oracle, {}", e.name), runs - wrong.len(), runs);
        failures.extend(wrong);
        all += runs;
    }
    figure("runs of random programs that agree with the oracle", all - failures.len(), all);
    let ops = OpKind::ALL.len() - coverage.missing().len();
    // All but `print`, which changes nothing that could be compared, and what only passes make.
    figure("ops that appear in random programs", ops, 80);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(ops >= 80 || seeds.end - seeds.start < 100, "only {ops} ops appear");
}

/// `TEGULA_SEEDS=FIRST..LAST` runs others than the usual few.
#[test]
fn random_programs_agree() {
    let seeds = std::env::var("TEGULA_SEEDS").unwrap_or_else(|_| "0..12".into());
    let (first, last) = seeds.split_once("..").expect("TEGULA_SEEDS is FIRST..LAST");
    agree(first.parse().unwrap()..last.parse().unwrap());
}

#[test]
#[ignore = "long"]
fn many_random_programs_agree() {
    agree(0..200);
}
