//! What the steady loops look like in assembly: speed that noise cannot touch.

use crate::harness::compile;
use tegula_codegen::lower::cpu::micro::{
    Stride,
    gemm::{Gemm, Kind, Operands, Stored},
};

/// The instructions of the loop that has the most of `what`: from its label to its backward jump.
pub fn hottest_loop<'a>(asm: &'a str, what: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = asm.lines().map(str::trim).collect();
    let mut best: Vec<&str> = vec![];
    for (start, line) in lines.iter().enumerate() {
        let Some(label) = line.strip_suffix(':').or_else(|| line.split_once(": ").map(|l| l.0)) else { continue };
        if !label.starts_with(".LBB") {
            continue;
        }
        // The loop ends at the first jump back to its label, with no other label between: an innermost loop.
        let mut body = vec![];
        for line in &lines[start + 1..] {
            if line.starts_with(".LBB") {
                break;
            }
            if line.starts_with(['.', '#']) || line.is_empty() {
                continue;
            }
            body.push(*line);
            if line.starts_with('j') && line.split_whitespace().nth(1) == Some(label) {
                if count(&body, what) > count(&best, what) {
                    best = body;
                }
                break;
            }
        }
    }
    assert!(!best.is_empty(), "no loop with `{what}`\n{asm}");
    best
}

/// Instructions whose mnemonic starts with `what`.
pub fn count(body: &[&str], what: &str) -> usize {
    body.iter().filter(|l| l.starts_with(what)).count()
}

/// Vector instructions that touch the stack.
pub fn spills(body: &[&str]) -> usize {
    body.iter().filter(|l| l.starts_with('v') && (l.contains("(%rsp") || l.contains("(%rbp"))).count()
}

#[test]
fn the_f32_block_has_no_instruction_too_many() {
    // Per step of k: 2 loads, h broadcasts, 2h fma.
    for (target, height, register) in [("x86-64-v3", 6, "ymm"), ("x86-64-v4", 12, "zmm")] {
        let g = Gemm { kind: Kind::F32, stored: Stored::Plain, m: height, n: 64, k: 256, padded: true };
        let f = compile(target, |c, p| {
            let fixed = |elements: i64| Stride::Fixed(4 * elements);
            g.emit(
                c,
                &Operands {
                    a: p[0],
                    a_row: fixed(272),
                    b: p[1],
                    b_panel: fixed(256 * 16 + 16),
                    b_row: fixed(16),
                    c: p[2],
                    c_row: fixed(64),
                    exists: None,
                },
            );
        });
        let body = hottest_loop(&f.asm, "vfmadd");
        let steps = count(&body, "vfmadd") / (2 * height);
        assert!(steps > 0, "{body:#?}");
        assert_eq!(count(&body, "vfmadd"), steps * 2 * height, "{body:#?}");
        assert_eq!(count(&body, "vbroadcastss"), steps * height, "{body:#?}");
        assert_eq!(count(&body, "vmov"), steps * 2, "{body:#?}");
        assert_eq!(spills(&body), 0, "{body:#?}");
        assert_eq!(
            body.iter().filter(|l| l.starts_with('v') && l.contains(register)).count(),
            steps * (2 + 3 * height)
        );
        // The loop itself: a counter or two and the jump.
        assert!(body.len() <= steps * (2 + 3 * height) + 5, "{body:#?}");
    }
}
