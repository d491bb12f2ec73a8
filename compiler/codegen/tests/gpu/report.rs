//! What kernels tell their host: prints in order, assertions and indices outside in checked kernels, without which they
//! say nothing.

use crate::harness::{Report, kernel, run};
use tegula_ir::{
    Elem, Scalar,
    protocol::{Meta, SiteKind},
    testing::{Arg, Buffer},
};

fn reports(text: &str, args: &mut [Arg], grid: [u32; 3], checked: bool) -> (Vec<Report>, Meta) {
    let (reports, meta, _) = run("sm_80", &kernel(text, 2), args, grid, checked).unwrap_or_else(|e| panic!("{e}"));
    (reports, meta)
}

#[test]
fn prints_come_in_row_major_order() {
    let text = r#"kernel @p(%0 "x": view<f32, 2>) {
  %1 = program_id {axis = 1} : i32
  %2 = const {value = 0: i64} : i64
  %3 = load %0, %2, %2 : tile<f32, 3, 5>
  print %3, %1 {message = "x ="} @ "p.rs":4:3
  print {message = "done"} @ "p.rs":5:3
}
"#;
    let values: Vec<u64> = (0..15).map(|i| Scalar::from_f64(Elem::F32, f64::from(i) * 1.5 - 3.0).bits).collect();
    let (got, meta) = reports(text, &mut [Arg::View(Buffer::new(Elem::F32, &[3, 5], &values))], [1, 2, 1], false);
    assert_eq!(meta.sites.len(), 3);
    assert_eq!((meta.sites[0].message.as_str(), meta.sites[0].loc.line), ("x =", 4));
    assert_eq!(meta.sites[0].kind, SiteKind::Print { elem: "f32".into(), shape: vec![3, 5] });
    for program in 0..2 {
        let of = |site| got.iter().filter(|r| r.1 == program && r.0 == site).map(|r| r.2).collect::<Vec<_>>();
        assert_eq!(of(0), values, "all elements, in order");
        assert_eq!((of(1), of(2)), (vec![program], vec![0]));
    }
}

#[test]
fn checked_kernels_report_assertions_indices_and_divisions() {
    let text = r#"kernel @c(%0 "x": view_mut<i32, 1>) {
  %1 = const {value = 0: i64} : i64
  %2 = load %0, %1 : tile<i32, 8>
  %3 = const {value = 3: i32} : tile<i32, 8>
  %4 = lt %2, %3 : tile<bool, 8>
  assert %4 {message = "too large"} @ "c.rs":5:1
  %5 = cast %2 : tile<i64, 8>
  %6 = gather %0, %5 : tile<i32, 8> @ "c.rs":7:1
  %7 = div %3, %2 : tile<i32, 8> @ "c.rs":8:1
  %8 = add %6, %7 : tile<i32, 8>
  store %0, %1, %8
}
"#;
    let arg = || [Arg::View(Buffer::new(Elem::I32, &[8], &[1, 2, 9, 1, 1, 0, 2, 1]))];
    let (got, meta) = reports(text, &mut arg(), [1; 3], true);
    let of = |kind: &dyn Fn(&SiteKind) -> bool| -> Vec<(u32, u64)> {
        let all = got.iter().filter(|r| kind(&meta.sites[r.0 as usize].kind));
        all.map(|r| (meta.sites[r.0 as usize].loc.line, r.2)).collect()
    };
    assert_eq!(of(&|k| *k == SiteKind::Assert), [(5, 0)], "the element 9, once");
    assert_eq!(of(&|k| *k == SiteKind::Index), [(7, 9)], "the index itself");
    assert_eq!(of(&|k| *k == SiteKind::Division), [(8, 0)], "the divisor, once though threads hold copies");
    assert!(reports(text, &mut arg(), [1; 3], false).0.is_empty());
}
