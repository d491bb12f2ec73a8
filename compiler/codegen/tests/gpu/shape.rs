//! Shapes of the PTX: what must be there, and how often.

use crate::harness::compile;
use tegula_ir::protocol::Emit;

fn ptx(kernel: &str) -> String {
    compile(kernel, "sm_90a", Emit::Artifact, false).unwrap_or_else(|e| panic!("{e}\n{kernel}")).0
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|l| l.contains(what)).count()
}

const SOFTMAX: &str = r#"kernel @softmax(%0 "x": view<f32, 2, unit, align16, small>, %1 "y": view_mut<f32, 2, unit, align16, small>) {
  %2 = program_id {axis = 0} : i32 @ "softmax.rs":3:5
  %3 = cast %2 : i64 @ "softmax.rs":3:5
  %4 = const {value = 0: i64} : i64 @ "softmax.rs":3:5
  %5 = load %0, %3, %4 : tile<f32, 1, 1024> @ "softmax.rs":4:9
  %6 = reduce %5 {axis = 1, kind = max} : tile<f32, 1, 1> @ "softmax.rs":5:9
  %7 = broadcast %6 : tile<f32, 1, 1024> @ "softmax.rs":6:9
  %8 = sub %5, %7 : tile<f32, 1, 1024> @ "softmax.rs":6:9
  %9 = exp %8 : tile<f32, 1, 1024> @ "softmax.rs":6:9
  %10 = reduce %9 {axis = 1, kind = sum} : tile<f32, 1, 1> @ "softmax.rs":7:9
  %11 = broadcast %10 : tile<f32, 1, 1024> @ "softmax.rs":8:9
  %12 = div %9, %11 : tile<f32, 1, 1024> @ "softmax.rs":8:9
  store %1, %3, %4, %12 @ "softmax.rs":9:5
}
"#;

#[test]
fn a_softmax_loads_sixteen_bytes_and_shuffles_five_times_a_reduction() {
    let text = ptx(SOFTMAX);
    assert_eq!(count(&text, "ld.global.nc.v4.b32"), 2, "eight elements a thread");
    assert_eq!(count(&text, "st.global.v4.b32"), 2);
    assert_eq!(count(&text, "shfl.sync.bfly"), 10, "one value a thread goes between lanes");
    assert_eq!(count(&text, "bar.sync") + count(&text, "barrier.sync"), 3, "write, read; write again, read");
    assert!(text.contains(".reqntid 128"), "{text}");
}

#[test]
fn nothing_is_contracted_and_division_is_exact() {
    let text = ptx(SOFTMAX);
    // A plain `add.f32` may become part of a fused multiply-add in ptxas.
    assert_eq!(count(&text, "add.f32") + count(&text, "mul.f32") + count(&text, "sub.f32"), 0, "{text}");
    assert_eq!(count(&text, "div.rn.f32"), 8);
    assert_eq!(count(&text, ".ftz"), 0);
}

#[test]
fn lines_are_the_users() {
    let text = ptx(SOFTMAX);
    assert!(text.contains(".file") && text.contains("softmax.rs"), "{text}");
    for line in 4..=9 {
        assert!(text.contains(&format!("\t.loc\t1 {line} ")) || line == 4, "line {line}\n{text}");
    }
}

#[test]
fn what_does_not_fit_is_an_error_that_names_it() {
    let kernel = r#"kernel @big(%0 "x": view_mut<f32, 2, unit, align16>) {
  %1 = const {value = 0: i64} : i64
  %2 = load %0, %1, %1 : tile<f32, 128, 256> @ "big.rs":2:1
  %3 = sort %2 : tile<f32, 128, 256> @ "big.rs":3:7
  store %0, %1, %1, %3
}
"#;
    let e = compile(kernel, "sm_80", Emit::Artifact, false).expect_err("256 KiB of rows do not fit");
    assert!(e.contains("`sort` needs 262144 bytes of shared memory, 95232 more than the 166912"), "{e}");
    assert!(e.contains("sm_80") && e.contains("big.rs"), "{e}");
    let e =
        compile(&kernel.replace(") {\n", ") {warps = 64} {\n"), "sm_80", Emit::Artifact, false).expect_err("64 warps");
    assert!(e.contains("64 warps"), "{e}");
}

#[test]
fn tiles_that_no_thread_can_hold_are_remarked_or_refused() {
    let copy = |n: usize, warps: &str| {
        format!(
            r#"kernel @c(%0 "x": view<f32, 2>, %1 "y": view_mut<f32, 2>) {{{warps}
  %2 = const {{value = 0: i64}} : i64
  %3 = load %0, %2, %2 : tile<f32, {n}, 256> @ "c.rs":3:9
  %4 = exp %3 : tile<f32, {n}, 256> @ "c.rs":4:9
  %5 = add %3, %4 : tile<f32, {n}, 256> @ "c.rs":5:9
  store %1, %2, %2, %5
}}
"#
        )
    };
    let compiled = |n, warps| compile(&copy(n, warps), "sm_80", Emit::Artifact, false).map(|r| r.1);
    let meta = |n, warps| compiled(n, warps).unwrap_or_else(|e| panic!("{e}"));
    let fits = meta(32, "");
    assert!(fits.remarks.is_empty() && fits.warps == 4, "{fits:?}");
    let more = meta(64, "");
    assert!(more.remarks.is_empty() && more.warps == 8, "warps are taken for their registers: {more:?}");
    let spills = meta(128, "warps = 4} {").remarks;
    assert!(
        spills.len() == 1
            && spills[0].contains("513 registers a thread for tiles, 258 more than it has")
            && spills[0].contains("more warps than 4"),
        "{spills:?}"
    );
    let spills = meta(256, "").remarks;
    assert!(spills.len() == 1 && spills[0].contains("memory; smaller tiles fit"), "{spills:?}");
    let spills = meta(128, "warps = 16} {").remarks;
    assert!(spills[0].contains("129 registers a thread for tiles, 1 more than it has"), "{spills:?}");
    let refused = compiled(1024, "").expect_err("2048 registers");
    assert!(refused.contains("registers a thread") && refused.contains("smaller tiles"), "{refused}");
}

#[test]
fn every_stage_prints() {
    let text = |emit| compile(SOFTMAX, "sm_80", emit, false).unwrap_or_else(|e| panic!("{e}"));
    assert!(text(Emit::Tile).0.contains("= exp") && !text(Emit::Tile).0.contains("layouts"));
    assert!(text(Emit::Layouts).0.contains(r#"layouts = "r[1, 2, 512] l[4, 8, 16, 32, 64] w[128, 256]""#));
    assert!(text(Emit::Mlir).0.contains("llvm.func") && text(Emit::Mlir).0.contains("nvvm.kernel"));
    assert!(text(Emit::Llvm).0.contains("define ptx_kernel void @tegula_kernel"));
    let (ptx, meta) = text(Emit::Artifact);
    assert_eq!(ptx, text(Emit::Asm).0);
    assert!(ptx.contains(".version 8.0\n.target sm_80"), "the version of the table");
    // A state of four warps' lanes.
    assert_eq!((meta.warps, meta.shared_bytes), (4, 4 * 32 * 4));
    let e = compile(SOFTMAX, "sm_70", Emit::Artifact, false).expect_err("an architecture that is not made for");
    assert!(e.contains("unknown GPU target `sm_70`: it is one of sm_80, sm_89, sm_90a"), "{e}");
    let e = compile(SOFTMAX, "cpu:x86-64-v3", Emit::Layouts, false).expect_err("a CPU has no layouts");
    assert!(e.contains("for GPU targets"), "{e}");
}
