//! Do random programs, and the emulator's checks, see a wrong lowering for GPUs? The MLIR that this compiler made is changed
//! in one way, as a mistake in the lowering would change it, goes the rest of the way to PTX and runs on the emulator.

use crate::{
    emulated::{CONFIG, TARGETS, compile, run},
    figure::figure,
    mlir::{self, ARITHMETIC, with_mistake},
    parallel,
};
use tegula_codegen::emit::{GpuTarget, Mlir, nvptx};
use tegula_ir::{
    protocol::{Emit, Meta},
    testing::{
        Row,
        random::{Config, program},
    },
};

/// Programs that may be needed to see a mistake.
const PROGRAMS: u64 = 200;

/// How a mistake gets into a kernel.
enum Plant {
    /// Into each line that it is about.
    Line(mlir::Mistake),
    /// Into the whole text.
    Text(fn(&str) -> Option<String>),
}

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

/// The mistakes that programs do not see on a target, each with how many programs had it.
///
/// # Errors
/// A program that is wrong without any mistake.
fn unseen(target: &str) -> Result<Vec<String>, String> {
    let arithmetic = ARITHMETIC.iter().map(|(name, plant)| (*name, Plant::Line(*plant), WRONG_VALUE));
    let others = MISTAKES.iter().map(|m| (m.name, Plant::Text(m.plant), m.said));
    let mut unseen: Vec<_> = arithmetic.chain(others).map(|mistake| (mistake, 0)).collect();
    for seed in 0..PROGRAMS {
        if unseen.is_empty() {
            break;
        }
        let mut row = program(seed, &Config { allow: mlir::plain, ..CONFIG })
            .expect()
            .map_err(|e| format!("seed {seed}: {e}"))?;
        row.kernel.set_warps(1 << (seed % 4));
        let (text, meta) = compile(&row.kernel.text(), target, Emit::Mlir, false)?;
        let before = unseen.len();
        unseen.retain_mut(|((name, plant, said), concerned)| {
            let changed = match plant {
                Plant::Line(mistake) => with_mistake(&text, *mistake),
                Plant::Text(plant) => plant(&text),
            };
            let Some(changed) = changed else { return true };
            *concerned += 1;
            let Err(e) = outcome(&row, target, &changed, &meta) else { return true };
            let e = e.lines().next().unwrap_or_default();
            let seen = e.contains(*said);
            if seen {
                println!("{target}: \"{name}\" is seen by program {seed}, number {concerned}: {e}");
            }
            !seen
        });
        // What was seen is the mistake's doing.
        if unseen.len() < before {
            outcome(&row, target, &text, &meta).map_err(|e| format!("seed {seed}, without any mistake: {e}"))?;
        }
    }
    Ok(unseen.into_iter().map(|((name, ..), concerned)| format!("{name} (in {concerned})")).collect())
}

#[test]
#[ignore = "long"]
fn a_mistake_in_the_lowering_for_gpus_is_seen() {
    let all = ARITHMETIC.len() + MISTAKES.len();
    // Every target is tried before any complaint.
    let unseen = parallel(0..TARGETS.len() as u64, |i| unseen(TARGETS[i as usize]));
    for (target, unseen) in TARGETS.iter().zip(unseen) {
        let unseen = unseen.unwrap_or_else(|e| panic!("{target}: {e}"));
        figure(&format!("mistakes planted in a lowering that random programs see, {target}"), all - unseen.len(), all);
        assert!(unseen.is_empty(), "{target}: {PROGRAMS} programs do not see: {}", unseen.join(", "));
    }
}
