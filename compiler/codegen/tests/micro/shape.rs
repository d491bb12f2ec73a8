//! What the steady loops look like in assembly: speed that noise cannot touch.

#[path = "../common/loops.rs"]
mod loops;

use crate::harness::compile;
use loops::inner_loops;
use tegula_codegen::lower::cpu::micro::{
    Stride,
    gemm::{Gemm, Kind, Operands, Stored},
    grouped::{Grouped, GroupedOperands},
};
use tegula_ir::{Quant, layout::panel};

/// The instructions of the innermost loop that has the most of `what`; the first of equals.
pub fn hottest_loop<'a>(asm: &'a str, what: &str) -> Vec<&'a str> {
    let best = inner_loops(asm).into_iter().rev().max_by_key(|body| count(body, what));
    best.filter(|body| count(body, what) > 0).unwrap_or_else(|| panic!("no loop with `{what}`\n{asm}"))
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

/// One row times panels of a quantised matrix: the loop over groups of one panel.
fn groups(target: &str, quant: Quant) -> Vec<String> {
    let k = 2048;
    let f = compile(target, |c, p| {
        let row = |elements: usize| Stride::Fixed(elements as i64);
        let at = GroupedOperands {
            codes: (p[0], row(k)),
            scales: (p[1], row(k / 8)),
            sums: (p[2], row(k / 8)),
            weights: p[3],
            panel: row(panel::format(quant).panel_bytes(k).unwrap()),
            exists: None,
            c: (p[4], row(32 * 4)),
            scratch: p[5],
        };
        Grouped::new((1, 32, k), quant).unwrap().emit(c, &at);
    });
    let what = if target.contains("vnni") { "vpdpbusd" } else { "vpmaddubsw" };
    hottest_loop(&f.asm, what).into_iter().map(String::from).collect()
}

#[test]
fn a_group_takes_as_many_byte_products_as_its_words() {
    // AVX2: a panel is two registers across, a group eight words. A load brings one word of bytes, or two of nibbles.
    for (quant, words, sums, signs, loads) in
        [(Quant::Q4_0, 16, 2, 0, 8), (Quant::Q5_0, 16, 4, 0, 10), (Quant::Q8_0, 16, 16, 16, 16)]
    {
        let body = groups("x86-64-v3", quant);
        let body: Vec<&str> = body.iter().map(String::as_str).collect();
        assert_eq!(count(&body, "vpmaddubsw"), words, "{quant} {body:#?}");
        assert_eq!(count(&body, "vpmaddwd"), sums, "{quant} {body:#?}");
        assert_eq!(count(&body, "vpsignb"), signs, "{quant} {body:#?}");
        assert_eq!(count(&body, "vfmadd"), 2, "{quant} {body:#?}");
        assert_eq!(spills(&body), 0, "{quant} {body:#?}");
        let read = body.iter().filter(|l| l.contains("ymm") && l.contains('(') && !l.contains("broadcast")).count();
        // Besides the codes, two loads of f16 scales.
        assert!(read <= loads + 2, "{quant}: {read} {body:#?}");
    }
    // AVX-512: a panel is one register.
    for quant in [Quant::Q4_0, Quant::Q5_1, Quant::Q8_0, Quant::Q4_K, Quant::Q6_K] {
        let body = groups("x86-64-v4,+avx512vnni", quant);
        let body: Vec<&str> = body.iter().map(String::as_str).collect();
        assert_eq!(count(&body, "vpdpbusd"), 8, "{quant} {body:#?}");
        assert_eq!(count(&body, "vfmadd"), if quant.has_min() { 2 } else { 1 }, "{quant} {body:#?}");
        assert_eq!(spills(&body), 0, "{quant} {body:#?}");
    }
}
