//! NVIDIA's assembler takes what we make. It is proprietary and may be absent (`./x setup --nvidia` gets it); then this is
//! counted as not checked, or fails where `TEGULA_PTXAS_REQUIRED` is set.
//!
//! Kernels of the library: kernels/tests/ptxas.rs.

use crate::harness::{CONFIG, compile, skip};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tegula_codegen::{
    nvidia::{ptxas, tool},
    service,
};
use tegula_ir::{
    Loc,
    protocol::{Emit, Meta, NO_TOOL, Request, Response},
    testing::{conformance, random::program},
};

/// All that code is made for.
const TARGETS: [&str; 3] = ["sm_80", "sm_89", "sm_90a"];

/// Whether there is an assembler.
fn present() -> bool {
    let missing = tool::find("ptxas").err();
    if let Some(e) = &missing {
        assert!(std::env::var_os("TEGULA_PTXAS_REQUIRED").is_none(), "TEGULA_PTXAS_REQUIRED is set, and {e}");
        skip("PTX is not assembled: no ptxas (./x setup --nvidia)");
    }
    missing.is_none()
}

fn answer(kernel: &str, target: &str, emit: Emit) -> Result<(Vec<u8>, Meta), String> {
    match service::answer(&Request { kernel: kernel.into(), target: target.into(), emit, checked: false }) {
        Response::Ok { bytes, meta } => Ok((bytes, meta)),
        Response::Err { stage, message, .. } => Err(format!("{stage}: {message}")),
    }
}

/// Calls `f` for all numbers below `n`, on a few threads.
fn parallel(n: usize, f: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(i) = Some(next.fetch_add(1, Relaxed)).filter(|i| *i < n) {
            f(i);
        }
    };
    std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(work))));
}

#[test]
fn every_row_assembles_without_spills_and_random_programs_assemble() {
    if !present() {
        return;
    }
    let mut kernels: Vec<(String, String)> =
        conformance::rows().into_iter().map(|r| (r.id.to_string(), r.kernel.text())).collect();
    kernels.extend((0..8).map(|s| (format!("seed {s}"), program(s, &CONFIG).row.kernel.text())));
    parallel(kernels.len() * TARGETS.len(), |i| {
        let ((name, kernel), target) = (&kernels[i / TARGETS.len()], TARGETS[i % TARGETS.len()]);
        let (cubin, meta) = answer(kernel, target, Emit::Cubin).unwrap_or_else(|e| panic!("{name} on {target}: {e}"));
        assert!(cubin.starts_with(b"\x7fELF"), "{name} on {target}");
        assert!((8..=255).contains(&meta.registers), "{name} on {target}: {} registers", meta.registers);
        let said = meta.remarks.iter().find(|r| r.starts_with("ptxas:"));
        assert!(said.is_none(), "{name} on {target}: ptxas changed the code, or warns: {said:?}");
        let remark = meta.remarks.iter().any(|r| r.contains("spill to local memory"));
        assert_eq!(remark, meta.spill_bytes > 0, "{name} on {target}: {:?}", meta.remarks);
        // Random programs keep tiles without end alive.
        if !name.starts_with("seed") {
            assert_eq!(meta.spill_bytes, 0, "{name} on {target}: {:?}", meta.remarks);
        }
    });
}

const SCALE: &str = r#"kernel @scale(%0 "x": view_mut<f32, 1, unit, align16>) {
  %1 = program_id {axis = 0} : i32 @ "scale.rs":3:5
  %2 = cast %1 : i64 @ "scale.rs":3:5
  %3 = const {value = 1024: i64} : i64 @ "scale.rs":3:5
  %4 = mul %2, %3 : i64 @ "scale.rs":3:5
  %5 = load %0, %4 : tile<f32, 1024> @ "scale.rs":4:9
  %6 = add %5, %5 : tile<f32, 1024> @ "scale.rs":5:9
  store %0, %4, %6 @ "scale.rs":6:5
}
"#;

#[test]
fn machine_code_knows_the_users_lines_and_is_optimised() {
    if !present() {
        return;
    }
    let (text, meta) = answer(SCALE, "sm_90a", Emit::Sass).unwrap_or_else(|e| panic!("{e}"));
    let text = String::from_utf8(text).expect("text");
    for line in 4..=6 {
        assert!(text.contains(&format!("scale.rs:{line}\n")), "line {line}\n{text}");
    }
    assert!(text.contains("LDG.E.128") && text.contains("STG.E.128") && text.contains("FADD"), "{text}");
    // Code that ptxas was not let optimise copies registers to themselves, and takes twice as many.
    assert!(meta.registers <= 40, "{} registers", meta.registers);
    let (first, again) = (answer(SCALE, "sm_80", Emit::Cubin), answer(SCALE, "sm_80", Emit::Cubin));
    assert_eq!(first, again, "the same kernel gives the same bytes");
}

#[test]
fn spills_are_counted_and_said() {
    if !present() {
        return;
    }
    let copy = r#"kernel @c(%0 "x": view<f32, 2>, %1 "y": view_mut<f32, 2>) {warps = 4} {
  %2 = const {value = 0: i64} : i64
  %3 = load %0, %2, %2 : tile<f32, 160, 256> @ "c.rs":3:9
  %4 = reduce %3 {axis = 1, kind = sum} : tile<f32, 160, 1> @ "c.rs":4:9
  %5 = broadcast %4 : tile<f32, 160, 256> @ "c.rs":5:9
  %6 = add %3, %5 : tile<f32, 160, 256> @ "c.rs":5:9
  store %1, %2, %2, %6
}
"#;
    let (_, meta) = answer(copy, "sm_90a", Emit::Cubin).unwrap_or_else(|e| panic!("{e}"));
    assert!(meta.spill_bytes > 0 && meta.stack_bytes > 0, "{meta:?}");
    let remark = meta.remarks.iter().find(|r| r.contains("spill to local memory")).expect("a remark");
    assert!(remark.starts_with(&format!("{} bytes of registers spill", meta.spill_bytes)), "{remark}");
    assert!(remark.contains("c.rs:") && remark.contains("smaller tiles, or more warps than "), "{remark}");
}

#[test]
fn what_ptxas_refuses_names_the_lines() {
    if !present() {
        return;
    }
    let (ptx, _) = compile(SCALE, "sm_80", Emit::Artifact, false).unwrap_or_else(|e| panic!("{e}"));
    assert_ne!(ptx, ptx.replace("add.rn.f32", "add.rq.f32"), "there is an addition:\n{ptx}");
    let e = ptxas::assemble(&ptx.replace("add.rn.f32", "add.rq.f32"), "sm_80").expect_err("there is no such rounding");
    assert_eq!((e.tool, e.loc), ("ptxas", Some(Loc::new("scale.rs", 5, 9))), "{}", e.message);
    assert!(e.message.contains(".rq") && e.message.contains("of the PTX is `add.rq.f32"), "{}", e.message);
    let e = ptxas::assemble(&ptx, "sm_12").expect_err("there is no such architecture");
    assert!(e.message.contains("sm_12") && e.loc.is_none(), "{e:?}");
    assert!(ptxas::version().is_ok_and(|v| v.starts_with("ptxas ")));
}

#[test]
fn cubins_are_for_gpus() {
    let e = answer(SCALE, "cpu:x86-64-v3", Emit::Cubin).expect_err("a CPU's kernel");
    assert!(e.contains("for GPU targets"), "{e}");
    // What programs look for to tell a missing tool from a kernel that is wrong.
    if let Err(e) = tool::find("ptxas") {
        assert!(e.message.starts_with(NO_TOOL) && e.message.contains("./x setup --nvidia"), "{e}");
    }
}
