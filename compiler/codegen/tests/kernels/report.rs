//! What kernels tell their host: assertions, prints, and the checks of checked kernels.

use crate::harness::*;
use tegula_ir::{
    Elem, Scalar,
    protocol::{Emit, SiteKind},
};

#[test]
fn prints_and_assertions() {
    let text = "kernel @k(%0 \"x\": view<f32, 1, unit>) {
      %1 = program_id {axis = 0} : i32
      %2 = cast %1 : i64
      %3 = load %0, %2 : tile<f32, 3>
      %4 = const {value = 1.5: f32} : tile<f32, 3>
      %5 = lt %3, %4 : tile<bool, 3>
      assert %5 {message = \"too large\"} @ \"a.rs\":7:3
      print %3, %1 {message = \"x\"}
    }";
    for target in targets() {
        let mut args = [Arg::view(Elem::F32, &[4], [1.0f32, 1.25, 2.0, -1.0].map(|v| u64::from(v.to_bits())))];
        let (_, meta) = request(text, target, Emit::Artifact, true);
        let kinds: Vec<&SiteKind> = meta.sites.iter().map(|s| &s.kind).collect();
        let [SiteKind::Assert, SiteKind::Print { elem, shape }, SiteKind::Print { elem: second, shape: scalar }] =
            kinds[..]
        else {
            panic!("{kinds:?}")
        };
        assert_eq!((elem.as_str(), &shape[..], second.as_str(), &scalar[..]), ("f32", &[3usize][..], "i32", &[][..]));
        assert_eq!((meta.sites[0].message.as_str(), meta.sites[0].loc.line), ("too large", 7));

        let bits = |v: f32| i64::from(v.to_bits());
        let printed =
            |p: u64, v: [f32; 3]| [(1, p, bits(v[0])), (1, p, bits(v[1])), (1, p, bits(v[2])), (2, p, p as i64)];
        let mut want = vec![];
        for (p, v) in [(0, [1.0, 1.25, 2.0]), (1, [1.25, 2.0, -1.0]), (2, [2.0, -1.0, 0.0])] {
            want.push((0, p, 0));
            want.extend(printed(p, v));
        }
        assert_eq!(native(text, &mut args, [3, 1, 1], target, true), want);
        // Unchecked: only the prints, under their own numbers.
        let quiet: Vec<_> = want.iter().filter(|r| r.0 > 0).map(|r| (r.0 - 1, r.1, r.2)).collect();
        assert_eq!(native(text, &mut args, [3, 1, 1], target, false), quiet);
    }
}

#[test]
fn checked_kernels_report_indices_and_divisions() {
    let text = "kernel @k(%0 \"x\": view<i32, 1>, %1 \"d\": i32) {
      %2 = iota : tile<i64, 5>
      %3 = gather %0, %2 : tile<i32, 5>
      %4 = broadcast %1 : tile<i32, 5>
      %5 = div %3, %4 : tile<i32, 5>
      print %5 {message = \"q\"}
    }";
    let run = |d: i64, checked: bool, target: &str| {
        let mut args = [Arg::view(Elem::I32, &[3], [10, 20, 30]), Arg::Scalar(Scalar::from_i64(Elem::I32, d))];
        let kinds: Vec<_> =
            request(text, target, Emit::Artifact, checked).1.sites.into_iter().map(|s| s.kind).collect();
        let reports = native(text, &mut args, [1, 1, 1], target, checked);
        reports.into_iter().map(|r| (kinds[r.0 as usize].clone(), r.2)).collect::<Vec<_>>()
    };
    for target in targets() {
        let index: Vec<i64> = run(2, true, target).iter().filter(|r| r.0 == SiteKind::Index).map(|r| r.1).collect();
        assert_eq!(index, [3, 4], "each index outside, once");
        assert!(run(2, true, target).iter().all(|r| r.0 != SiteKind::Division));
        assert!(run(0, true, target).iter().any(|r| r.0 == SiteKind::Division));
        assert!(run(0, false, target).iter().all(|r| matches!(r.0, SiteKind::Print { .. }) && r.1 == 0));
    }
}

#[test]
fn every_stage_answers() {
    let text = "kernel @k(%0 \"x\": view_mut<f32, 1, unit>) {\n%1 = const {value = 0: i64} : i64\n%2 = load %0, %1 : tile<f32, 64>\n%3 = add %2, %2 : tile<f32, 64>\nstore %0, %1, %3\n}";
    let text_of = |emit| String::from_utf8(request(text, "cpu:x86-64-v3", emit, false).0).unwrap();
    assert!(text_of(Emit::Tile).contains("= add"));
    assert!(text_of(Emit::Mlir).contains("arith.addf"));
    assert!(text_of(Emit::Llvm).contains("fadd <8 x float>"));
    assert!(text_of(Emit::Asm).contains("vaddps"));
}

#[test]
fn failures_are_answers() {
    use tegula_codegen::service::answer;
    use tegula_ir::protocol::{Request, Response};
    let ask = |kernel: &str, target: &str| {
        answer(&Request { kernel: kernel.into(), target: target.into(), emit: Emit::Artifact, checked: false })
    };
    let fails = |kernel: &str, target: &str, want: &str, says: &str| match ask(kernel, target) {
        Response::Err { stage, message, .. } => {
            assert_eq!(stage, want, "{message}");
            assert!(message.contains(says), "{message}");
        }
        Response::Ok { .. } => panic!("compiled: {kernel}"),
    };
    let good = "kernel @k() {\n}";
    fails("kernel @", "cpu:x86-64-v3", "parse", "");
    fails("kernel @k(%0 \"x\": f32) {\n%1 = not %0 : f32\n}", "cpu:x86-64-v3", "verify", "integers");
    fails(good, "gpu:sm_80", "lower", "cpu:");
    fails(good, "cpu:znver3", "lower", "x86-64-v3");
    fails(good, "cpu:x86-64-v2", "lower", "AVX2");
    fails(good, "cpu:x86-64-v4+warp", "lower", "warp");
    let raw = "kernel @k(%0 \"w\": packed<q4_0, tiles>, %1 \"y\": view_mut<f32, 2, unit>) {\n%2 = const {value = 0: i64} : i64\n%3 = packed_load %0, %2, %2 : qtile<q4_0, 32, 16>\n%4 = dequant %3 : tile<f32, 32, 16>\nstore %1, %2, %2, %4\n}";
    fails(raw, "cpu:x86-64-v3", "lower", "gguf, panel16");
    assert!(matches!(ask(good, "cpu:x86-64-v4+vnni"), Response::Ok { .. }));
}
