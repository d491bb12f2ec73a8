//! Do random programs, and the emulator's checks, see a wrong lowering for GPUs? The MLIR that this compiler made is changed
//! in one way, as a mistake in the lowering would change it, goes the rest of the way to PTX and runs on the emulator.

use crate::{
    emulated::{CONFIG, TARGETS, compile, run},
    figure::figure,
    mlir::{ARITHMETIC, with_mistake},
};
use tegula_codegen::emit::{GpuTarget, Mlir, nvptx};
use tegula_ir::{
    protocol::{Emit, Meta},
    testing::{Row, random::program},
};

/// Programs that may be needed to see a mistake.
const PROGRAMS: u64 = 200;

/// A mistake in the text of a kernel's MLIR.
struct Mistake {
    name: &'static str,
    /// The text with the mistake; `None` if it has nothing that the mistake is about.
    plant: fn(&str) -> Option<String>,
    /// What must be said of it; empty where it may be anything.
    said: &'static str,
}

/// What comparing with the oracle says.
const WRONG_VALUE: &str = ": expected ";

const MISTAKES: &[Mistake] = &[
    Mistake {
        name: "a reduction exchanges with the lane at half the distance",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let [callee, x, distance, clamp] = l.operands[..] else { return None };
                let (one, half) = (l.fresh("one"), l.fresh("half"));
                let changed = format!(
                    "{one} = arith.constant 1 : i32\n{half} = arith.shrui {distance}, {one} : i32\n\
                     {} = {} {callee}, {x}, {half}, {clamp} : {}",
                    l.result, l.name, l.ty
                );
                callee.contains("shfl.sync.bfly").then_some(changed)
            })
        },
        said: WRONG_VALUE,
    },
    Mistake {
        name: "a conversion reads the next lane",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let [callee, x, lane, clamp] = l.operands[..] else { return None };
                let (one, next) = (l.fresh("one"), l.fresh("next"));
                let changed = format!(
                    "{one} = arith.constant 1 : i32\n{next} = arith.xori {lane}, {one} : i32\n\
                     {} = {} {callee}, {x}, {next}, {clamp} : {}",
                    l.result, l.name, l.ty
                );
                callee.contains("shfl.sync.idx").then_some(changed)
            })
        },
        said: WRONG_VALUE,
    },
    Mistake { name: "no barrier", plant: |mlir| without(mlir, |_, line| line.contains(BARRIER)), said: "race: " },
    Mistake {
        name: "no barrier before shared memory is written again",
        plant: |mlir| without(mlir, |rest, line| line.contains(BARRIER) && next_access(rest, "llvm.store")),
        said: "race: ",
    },
    Mistake {
        name: "no barrier between writing and reading shared memory",
        plant: |mlir| without(mlir, |rest, line| line.contains(BARRIER) && next_access(rest, "llvm.load")),
        said: "race: ",
    },
    Mistake {
        name: "a store to shared memory is forgotten",
        plant: |mlir| without(mlir, |_, line| line.contains("llvm.store") && line.contains("!llvm.ptr<3>")),
        said: "which nothing wrote",
    },
    Mistake {
        name: "loads go over the edge",
        plant: |mlir| replaced(mlir, "@$2 ld.global", "ld.global"),
        said: "is out of bounds",
    },
    Mistake {
        name: "stores go over the edge",
        plant: |mlir| replaced(mlir, "@$2 st.global", "st.global"),
        said: "is out of bounds",
    },
    Mistake {
        name: "the last element before an edge counts as outside",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let (["ult", index, extent], "arith.cmpi", "i64") = (&l.operands[..], l.name, l.ty) else {
                    return None;
                };
                let (one, next) = (l.fresh("one"), l.fresh("next"));
                Some(format!(
                    "{one} = arith.constant 1 : i64\n{next} = arith.addi {index}, {one} : i64\n\
                     {} = arith.cmpi ult, {next}, {extent} : i64",
                    l.result
                ))
            })
        },
        said: WRONG_VALUE,
    },
    Mistake {
        name: "a layout loses the highest bit of the thread's number",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let (["%0", mask], "arith.andi") = (&l.operands[..], l.name) else { return None };
                let (one, half) = (l.fresh("one"), l.fresh("half"));
                Some(format!(
                    "{one} = arith.constant 1 : i32\n{half} = arith.shrui {mask}, {one} : i32\n\
                     {} = arith.andi %0, {half} : i32",
                    l.result
                ))
            })
        },
        // Values, or addresses that nothing wrote, or a race.
        said: "",
    },
    Mistake {
        name: "a layout is off by one row",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let (["%0", mask], "arith.andi") = (&l.operands[..], l.name) else { return None };
                let (one, masked) = (l.fresh("one"), l.fresh("masked"));
                Some(format!(
                    "{one} = arith.constant 1 : i32\n{masked} = arith.andi %0, {mask} : i32\n\
                     {} = arith.xori {masked}, {one} : i32",
                    l.result
                ))
            })
        },
        said: WRONG_VALUE,
    },
    Mistake {
        name: "elements are taken for narrower ones",
        plant: |mlir| replaced(mlir, "-> !llvm.ptr<1>, f32", "-> !llvm.ptr<1>, i16"),
        said: "is no multiple of",
    },
    Mistake {
        name: "every copy of a value takes part",
        plant: |mlir| {
            with_mistake(mlir, |l| {
                let (["eq", x, _], "arith.cmpi", "i32") = (&l.operands[..], l.name, l.ty) else { return None };
                Some(format!("{} = arith.cmpi eq, {x}, {x} : i32", l.result))
            })
        },
        said: WRONG_VALUE,
    },
];

const BARRIER: &str = "llvm.nvvm.barrier.cta.sync.aligned.all";

/// Without those lines that `drop` says, of the lines after one and itself; `None` if there are none.
fn without(mlir: &str, drop: impl Fn(&[&str], &str) -> bool) -> Option<String> {
    let lines: Vec<&str> = mlir.lines().collect();
    let kept: Vec<&str> = (0..lines.len()).filter(|&i| !drop(&lines[i + 1..], lines[i])).map(|i| lines[i]).collect();
    (kept.len() < lines.len()).then(|| kept.join("\n"))
}

/// Whether the next access to shared memory is of this kind.
fn next_access(rest: &[&str], op: &str) -> bool {
    let access = |l: &&&str| l.contains("!llvm.ptr<3>") && (l.contains("llvm.load") || l.contains("llvm.store"));
    rest.iter().find(access).is_some_and(|l| l.contains(op))
}

fn replaced(mlir: &str, from: &str, to: &str) -> Option<String> {
    mlir.contains(from).then(|| mlir.replace(from, to))
}

/// What `row` gives as this MLIR.
fn outcome(row: &Row, target: &str, text: &str, meta: &Meta) -> Result<(), String> {
    let mlir = Mlir::new();
    let mut module = mlir.parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let gpu = GpuTarget::parse(target).unwrap();
    let (ptx, _) = nvptx::compile(&mlir, &mut module, &gpu, &[]).unwrap_or_else(|e| panic!("{e}"));
    row.run(&mut |kernel, args, grid, _| run(&ptx, meta, target, kernel, args, grid))
}

#[test]
#[ignore = "long"]
fn a_mistake_in_the_lowering_for_gpus_is_seen() {
    let arithmetic = ARITHMETIC.len();
    let count = MISTAKES.len() + arithmetic;
    for target in TARGETS {
        // Number of the mistake, and how many programs had it.
        let mut unseen: Vec<(usize, usize)> = (0..count).map(|i| (i, 0)).collect();
        let name = |i: usize| if i < arithmetic { ARITHMETIC[i].0 } else { MISTAKES[i - arithmetic].name };
        for seed in 0..PROGRAMS {
            let mut row = program(seed, &CONFIG).expect().unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            row.kernel.set_warps(1 << (seed % 4));
            let (text, meta) = compile(&row.kernel.text(), target, Emit::Mlir, false).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(outcome(&row, target, &text, &meta), Ok(()), "seed {seed}, {target}: without any mistake");
            unseen.retain_mut(|(i, concerned)| {
                let (changed, said) = match i.checked_sub(arithmetic) {
                    None => (with_mistake(&text, ARITHMETIC[*i].1), WRONG_VALUE),
                    Some(i) => ((MISTAKES[i].plant)(&text), MISTAKES[i].said),
                };
                let Some(changed) = changed else { return true };
                *concerned += 1;
                let outcome = outcome(&row, target, &changed, &meta);
                let seen = outcome.as_ref().is_err_and(|e| e.contains(said));
                if let (true, Err(e)) = (seen, &outcome) {
                    let e = e.lines().next().unwrap_or_default();
                    println!("{target}: \"{}\" is seen by program {seed}, number {concerned}: {e}", name(*i));
                }
                !seen
            });
            if unseen.is_empty() {
                break;
            }
        }
        figure(
            &format!("mistakes planted in a lowering that random programs see, {target}"),
            count - unseen.len(),
            count,
        );
        let names: Vec<_> = unseen.iter().map(|(i, concerned)| format!("{} (in {concerned})", name(*i))).collect();
        assert!(names.is_empty(), "{target}: {PROGRAMS} programs do not see: {}", names.join(", "));
    }
}
