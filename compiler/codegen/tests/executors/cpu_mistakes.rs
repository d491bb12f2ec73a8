//! Does the differential test see a wrong lowering? The MLIR that this compiler made is changed in one way, as a mistake in
//! one lowering would change it, and goes the rest of the way to machine code. Random programs must then disagree with the
//! oracle.
//!
//! No change lets a kernel touch memory that it would not touch otherwise.

use crate::{
    figure::figure,
    mlir::{self, ARITHMETIC, Line, Mistake, with_mistake},
    native::{run, targets},
    parallel,
};
use tegula_codegen::{
    emit::{self, CpuTarget, Mlir},
    lower::cpu,
};
use tegula_ir::{
    passes,
    testing::{
        Row,
        random::{Config, program},
    },
};

/// Programs that may be needed to see a mistake.
const PROGRAMS: u64 = 200;

const AT_EDGES: &[(&str, Mistake)] = &[("the last element before an edge counts as outside", |l| {
    let (Line { result, ty, .. }, "arith.cmpi") = (l, l.name) else { return None };
    let ["ult", index, extent] = l.operands[..] else { return None };
    let lanes = ty.strip_prefix("vector<")?.strip_suffix("xi64>")?;
    let [one, next, inside, not_last] = ["one", "next", "inside", "not_last"].map(|name| l.fresh(name));
    Some(format!(
        "{one} = arith.constant dense<1> : {ty}\n\
             {next} = arith.addi {index}, {one} : {ty}\n\
             {inside} = arith.cmpi ult, {index}, {extent} : {ty}\n\
             {not_last} = arith.cmpi ne, {next}, {extent} : {ty}\n\
             {result} = arith.andi {inside}, {not_last} : vector<{lanes}xi1>"
    ))
})];

/// What `row` gives when `change` is made to its MLIR; `None` if that changes nothing.
fn outcome(row: &Row, target: &str, change: impl Fn(&str) -> Option<String>) -> Option<Result<(), String>> {
    let target = CpuTarget::parse(target.trim_start_matches("cpu:")).unwrap();
    let mut kernel = row.kernel.clone();
    passes::optimise(&mut kernel);
    let mlir = Mlir::new();
    let lowered = cpu::lower(mlir.context(), &kernel, &target, false).unwrap();
    let text = change(&lowered.module.as_operation().to_string())?;
    let mut module = mlir.parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let (code, _) = emit::compile(&mlir, &mut module, &target, &[]).unwrap_or_else(|e| panic!("{e}"));
    Some(row.run(&mut |_, args, grid, checked| run(&code, &lowered.meta, args, grid, checked)))
}

/// The mistakes that programs do not see on a target, each with how many programs had it.
///
/// # Errors
/// A program that is wrong without any mistake.
fn unseen(target: &str) -> Result<Vec<String>, String> {
    let mut unseen: Vec<_> = ARITHMETIC.iter().chain(AT_EDGES).map(|(name, mistake)| (name, mistake, 0)).collect();
    for seed in 0..PROGRAMS {
        if unseen.is_empty() {
            break;
        }
        let row = program(seed, &Config { allow: mlir::plain, ..Config::default() });
        let row = row.expect().map_err(|e| format!("seed {seed}: {e}"))?;
        let before = unseen.len();
        unseen.retain_mut(|(name, mistake, concerned)| {
            let Some(outcome) = outcome(&row, target, |mlir| with_mistake(mlir, **mistake)) else { return true };
            *concerned += 1;
            if let Err(e) = &outcome {
                println!("{target}: \"{name}\" is seen by program {seed}, number {concerned} of those it is in: {e}");
            }
            outcome.is_ok()
        });
        // What was seen is the mistake's doing.
        if unseen.len() < before
            && let Some(Err(e)) = outcome(&row, target, |mlir| Some(mlir.to_owned()))
        {
            return Err(format!("seed {seed}, without any mistake: {e}"));
        }
    }
    Ok(unseen.into_iter().map(|(name, _, concerned)| format!("{name} (in {concerned})")).collect())
}

#[test]
#[ignore = "long"]
fn a_mistake_in_a_lowering_is_seen() {
    let (all, targets) = (ARITHMETIC.len() + AT_EDGES.len(), targets());
    // Every target is tried before any complaint.
    let unseen = parallel(0..targets.len() as u64, |i| unseen(targets[i as usize]));
    for (target, unseen) in targets.iter().zip(unseen) {
        let unseen = unseen.unwrap_or_else(|e| panic!("{target}: {e}"));
        figure(&format!("mistakes planted in a lowering that random programs see, {target}"), all - unseen.len(), all);
        assert!(unseen.is_empty(), "{target}: {PROGRAMS} programs do not see: {}", unseen.join(", "));
    }
}
