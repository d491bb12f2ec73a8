//! What the steady loops of row kernels look like in assembly: vectors only, nothing spilled, no check of bounds.

#[path = "../common/loops.rs"]
mod loops;

use crate::harness::request;
use loops::inner_loops;
use tegula_ir::protocol::Emit;

/// The loops without bounds checks that hold float vectors: those whose only compare is the loop's own.
fn steady(asm: &str) -> Vec<Vec<&str>> {
    let floats = |l: &&&str| l.starts_with('v') && (l.contains("ps") || l.contains("pd"));
    let mut loops = inner_loops(asm);
    loops.retain(|body| body.iter().filter(floats).count() > 0);
    loops
}

fn rows(body: &str) -> String {
    format!(
        "kernel @rows(%0 \"x\": view<f32, 2, unit>, %1 \"y\": view_mut<f32, 2, unit>) {{
          %2 = program_id {{axis = 0}} : i32
          %3 = cast %2 : i64
          %4 = const {{value = 0: i64}} : i64
          %5 = load %0, %3, %4 : tile<f32, 1, 4096>
          {body}
          store %1, %3, %4, %20
        }}"
    )
}

fn check(name: &str, text: &str, least: usize) {
    for (target, register) in [("cpu:x86-64-v3", "%ymm"), ("cpu:x86-64-v4", "%zmm")] {
        let asm = String::from_utf8(request(text, target, Emit::Asm, false).0).unwrap();
        let loops = steady(&asm);
        // Each pass over the row is there without checks.
        let clean: Vec<_> =
            loops.iter().filter(|l| l.iter().all(|i| !i.contains("mask") && !i.starts_with("set"))).collect();
        assert!(clean.len() >= least, "{name}, {target}: {} steady loops\n{asm}", clean.len());
        for body in clean {
            for instruction in body {
                let mnemonic = instruction.split_whitespace().next().unwrap();
                let scalar = mnemonic.starts_with('v') && (mnemonic.ends_with("ss") || mnemonic.ends_with("sd"));
                // A broadcast from memory is a vector instruction.
                assert!(
                    !scalar || mnemonic.contains("broadcast"),
                    "{name}, {target}: scalar `{instruction}` in\n{}",
                    body.join("\n")
                );
                // A constant read from the stack costs nothing; a store is a spill.
                let spill = instruction.starts_with('v')
                    && (instruction.ends_with("(%rsp)") || instruction.ends_with("(%rbp)"));
                assert!(!spill, "{name}, {target}: spill `{instruction}` in\n{}", body.join("\n"));
                assert!(!mnemonic.starts_with("call"), "{name}, {target}: `{instruction}`");
            }
            assert!(
                body.iter().any(|i| i.contains(register)),
                "{name}, {target}: narrow vectors in\n{}",
                body.join("\n")
            );
        }
    }
}

#[test]
fn softmax_is_vectors_only() {
    let n = 4096;
    let body = format!(
        "%8 = reduce %5 {{axis = 1, kind = max}} : tile<f32, 1, 1>
         %9 = broadcast %8 : tile<f32, 1, {n}>
         %10 = sub %5, %9 : tile<f32, 1, {n}>
         %11 = exp %10 : tile<f32, 1, {n}>
         %12 = reduce %11 {{axis = 1, kind = sum}} : tile<f32, 1, 1>
         %13 = broadcast %12 : tile<f32, 1, {n}>
         %20 = div %11, %13 : tile<f32, 1, {n}>"
    );
    check("softmax", &rows(&body), 4);
}

#[test]
fn rms_norm_is_vectors_only() {
    let n = 4096;
    let body = format!(
        "%8 = mul %5, %5 : tile<f32, 1, {n}>
         %9 = reduce %8 {{axis = 1, kind = sum}} : tile<f32, 1, 1>
         %10 = rsqrt %9 : tile<f32, 1, 1>
         %11 = broadcast %10 : tile<f32, 1, {n}>
         %20 = mul %5, %11 : tile<f32, 1, {n}>"
    );
    check("rmsnorm", &rows(&body), 2);
}
