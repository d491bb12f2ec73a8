//! Passes keep what kernels mean: the oracle gives the same bits before and after, on random kernels.

#[path = "passes/gen.rs"]
mod generate;

use generate::{execute, kernel};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tegula_ir::{Kernel, OpKind, passes};

fn keeps_meaning(seed: u64, pipeline: &str) -> Result<(), TestCaseError> {
    let before = kernel(seed, 60);
    before.verify().unwrap();
    let expected = execute(&before, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut after = before.clone();
    passes::run_named(&mut after, pipeline).unwrap();
    after.verify().map_err(|e| TestCaseError::fail(format!("seed {seed}: {e}\n{after}")))?;
    let found = execute(&after, seed).map_err(|e| TestCaseError::fail(format!("seed {seed}: {e}\n{after}")))?;
    let at = (0..expected.len()).find(|&i| expected[i] != found[i]);
    prop_assert!(
        at.is_none(),
        "seed {seed}, {pipeline}: byte {at:?} differs\n{}\n{}",
        before.renumbered().text_without_locs(),
        after.renumbered().text_without_locs()
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("RANDOM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(150), failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn canonicalise(seed: u64) { keeps_meaning(seed, "canonicalise")? }
    #[test]
    fn cse(seed: u64) { keeps_meaning(seed, "cse")? }
    #[test]
    fn licm(seed: u64) { keeps_meaning(seed, "licm")? }
    #[test]
    fn dce(seed: u64) { keeps_meaning(seed, "dce")? }
    #[test]
    fn optimise(seed: u64) { keeps_meaning(seed, "optimise")? }
    /// A second run finds nothing left to do.
    #[test]
    fn optimise_is_idempotent(seed: u64) {
        let mut once = kernel(seed, 60);
        passes::optimise(&mut once);
        let mut twice = once.clone();
        passes::optimise(&mut twice);
        prop_assert_eq!(once.renumbered(), twice.renumbered());
    }
    #[test]
    fn text_round_trip(seed: u64) {
        let k = kernel(seed, 60).renumbered();
        prop_assert_eq!(Kernel::parse(&k.text()).unwrap(), k);
    }
}

/// The random kernels reach what the tests above claim to test.
#[test]
fn coverage() {
    let (mut ops, mut changed) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..200 {
        let k = kernel(seed, 60);
        k.body.walk(&mut |op| *ops.entry(op.kind).or_insert(0) += 1);
        for pass in passes::PASSES {
            *changed.entry(pass.name).or_insert(0) += (pass.run)(&mut k.clone()) as usize;
        }
    }
    use OpKind::*;
    let reached = [
        Const,
        Iota,
        ProgramId,
        NumPrograms,
        Broadcast,
        Reshape,
        Permute,
        Slice,
        Cat,
        Neg,
        Not,
        Abs,
        Cast,
        Bitcast,
        Add,
        Sub,
        Mul,
        Div,
        Rem,
        Min,
        MinNan,
        And,
        Shl,
        Shr,
        Umulhi,
        Eq,
        Lt,
        Select,
        Fma,
        Reduce,
        Scan,
        Dim,
        Load,
        Store,
        Gather,
        Scatter,
        Atomic,
        For,
        While,
        If,
        Assume,
        MultipleOf,
    ];
    for kind in reached {
        assert!(ops.get(&kind).is_some_and(|&n| n >= 10), "`{}` in {:?} of 200 kernels", kind.name(), ops.get(&kind));
    }
    for (name, n) in changed {
        assert!(n >= 100, "`{name}` changed {n} of 200 kernels");
    }
}
