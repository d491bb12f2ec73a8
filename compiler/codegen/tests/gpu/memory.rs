//! Memory that the threads of a program share: what one of them writes the others read, through views and through shared
//! memory; indices at the ends of what an integer holds.

use crate::harness::{Rng, TARGETS, bits, compile, kernel, run};
use tegula_ir::{
    Elem,
    protocol::{Emit, SiteKind},
    testing::{Arg, Buffer, data, ints},
};

/// A scalar of a view is written by one thread, and then read by all.
#[test]
fn what_one_thread_writes_all_threads_read() {
    let text = r#"kernel @k(%0 "x": view_mut<f32, 0, unit, align16, small>, %1 "y": view_mut<f32, 1, unit, align16, small>) {
  %2 = const {value = 0: i64} : i64
  %3 = const {value = 2.0: f32} : f32
  %4 = load %0 : f32
  %5 = add %4, %3 : f32
  store %0, %5
  %6 = load %0 : f32
  %7 = add %4, %6 : f32
  %8 = broadcast %7 : tile<f32, 512>
  store %1, %2, %8
}
"#;
    for target in TARGETS {
        let mut args = [
            Arg::View(Buffer::new(Elem::F32, &[], &data(Elem::F32, &[1.5]))),
            Arg::View(Buffer::poisoned(Elem::F32, &[512])),
        ];
        run(target, &kernel(text, 4), &mut args, [1; 3], false).unwrap_or_else(|e| panic!("{target}: {e}"));
        assert_eq!(bits(&args[1]), data(Elem::F32, &[5.0; 512]), "{target}");
        let (llvm, _) = compile(text, target, Emit::Llvm, false).unwrap();
        let entry = llvm.lines().find(|l| l.starts_with("define")).expect("an entry");
        assert!(!entry.contains("noalias"), "a barrier would not concern such memory: {entry}");
    }
}

/// The mask comes from memory in other threads' hands than the values: both go through shared memory, one after the other.
#[test]
fn a_masked_histogram_of_many_elements() {
    let mut rng = Rng(7);
    for (n, bins) in [(1024, 7), (2500, 300), (96, 40)] {
        let text = format!(
            r#"kernel @h(%0 "x": view<i32, 1, unit, align16>, %1 "m": view<bool, 1, unit, align16>, %2 "y": view_mut<i32, 1, unit>) {{
  %3 = const {{value = 0: i64}} : i64
  %4 = load %0, %3 : tile<i32, {n}>
  %5 = load %1, %3 : tile<bool, {n}>
  %6 = histogram %4, %5 {{bins = {bins}, masked}} : tile<i32, {bins}>
  store %2, %3, %6
}}
"#
        );
        let values: Vec<i64> = (0..n).map(|_| (rng.next() % (bins as u64 + 2)) as i64 - 1).collect();
        let mask: Vec<i64> = (0..n).map(|_| (!rng.next().is_multiple_of(3)).into()).collect();
        let mut expected = vec![0; bins];
        for (v, m) in values.iter().zip(&mask) {
            if let Some(count) = usize::try_from(*v).ok().and_then(|v| expected.get_mut(v)) {
                *count += m;
            }
        }
        for (target, warps) in TARGETS.into_iter().flat_map(|t| [1, 2, 4, 8].map(|w| (t, w))) {
            let mut args = [
                Arg::View(Buffer::new(Elem::I32, &[n], &ints(Elem::I32, values.iter().copied()))),
                Arg::View(Buffer::new(Elem::Bool, &[n], &ints(Elem::Bool, mask.iter().copied()))),
                Arg::View(Buffer::poisoned(Elem::I32, &[bins as i64])),
            ];
            run(target, &kernel(&text, warps), &mut args, [1; 3], false).unwrap_or_else(|e| panic!("{target}: {e}"));
            assert_eq!(bits(&args[2]), ints(Elem::I32, expected.iter().copied()), "{target}, {n}, {warps} warps");
        }
    }
}

/// A division by zero within a combiner shows whichever thread meets it.
#[test]
fn divisions_in_combiners_are_reported_by_all_threads() {
    let text = r#"kernel @d(%0 "x": view<i32, 1, unit, align16>, %1 "y": view_mut<i32, 1>) {
  %2 = const {value = 0: i64} : i64
  %3 = load %0, %2 : tile<i32, 512>
  %4 = reduce_with %3 {axis = 0} : tile<i32, 1> {
    (%5: i32, %6: i32)
    %7 = div %5, %6 : i32 @ "d.rs":6:1
    yield %7
  }
  store %1, %2, %4
}
"#;
    for (target, zero) in TARGETS.into_iter().flat_map(|t| [0, 9, 130, 511].map(|z| (t, z))) {
        let values = (0..512).map(|i| if i == zero { 0 } else { 1 });
        let mut args = [
            Arg::View(Buffer::new(Elem::I32, &[512], &ints(Elem::I32, values))),
            Arg::View(Buffer::poisoned(Elem::I32, &[1])),
        ];
        let (reports, meta, _) =
            run(target, &kernel(text, 4), &mut args, [1; 3], true).unwrap_or_else(|e| panic!("{e}"));
        let divisions = reports.iter().filter(|r| meta.sites[r.0 as usize].kind == SiteKind::Division).count();
        // The first element of all is only ever divided.
        assert_eq!(divisions > 0, zero != 0, "{target}: a zero at {zero}");
    }
}

/// A byte that is not as expected is only read, and must be read in order all the same.
#[test]
fn a_byte_that_is_not_swapped_is_acquired() {
    for (order, fences) in [("acquire", true), ("acq_rel", true), ("release", false), ("relaxed", false)] {
        let text = format!(
            r#"kernel @c(%0 "x": view_mut<u8, 1>) {{
  %1 = const {{value = 0: i64}} : tile<i64, 1>
  %2 = const {{value = 0: u8}} : tile<u8, 1>
  %3 = const {{value = 1: u8}} : tile<u8, 1>
  %4 = atomic_cas %0, %1, %2, %3 {{order = {order}}} : tile<u8, 1>
}}
"#
        );
        let (ptx, _) = compile(&text, "sm_80", Emit::Artifact, false).unwrap_or_else(|e| panic!("{e}"));
        let after = ptx.rfind("cas.b32").map(|at| &ptx[at..]).expect("a compare and swap");
        assert_eq!(after.contains("fence.acq_rel.gpu"), fences, "{order}:\n{ptx}");
    }
}

/// Chunks of a load that starts almost as far away as positions go are as far outside as its start.
#[test]
fn products_of_what_lies_far_outside_are_zero() {
    for (target, position) in TARGETS.into_iter().flat_map(|t| [i64::MAX - 9, i64::MIN + 9, 1 << 40].map(|p| (t, p))) {
        let text = r#"kernel @k(%0 "x": view<f32, 2, unit>, %1 "y": view<f32, 2, unit>, %2 "z": view_mut<f32, 2, unit>, %9 "p": i64) {
  %3 = const {value = 0: i64} : i64
  %4 = load %0, %3, %9 : tile<f32, 8, 256>
  %5 = load %1, %9, %3 : tile<f32, 256, 8>
  %6 = const {value = 1.0: f32} : tile<f32, 8, 8>
  %7 = dot %4, %5, %6 : tile<f32, 8, 8>
  store %2, %3, %3, %7
}
"#;
        let ones = |n: usize| data(Elem::F32, &vec![1.0; n]);
        let mut args = [
            Arg::View(Buffer::new(Elem::F32, &[8, 300], &ones(2400))),
            Arg::View(Buffer::new(Elem::F32, &[300, 8], &ones(2400))),
            Arg::View(Buffer::poisoned(Elem::F32, &[8, 8])),
            Arg::Scalar(tegula_ir::Scalar::from_i64(Elem::I64, position)),
        ];
        run(target, &kernel(text, 2), &mut args, [1; 3], false).unwrap_or_else(|e| panic!("{target}, {position}: {e}"));
        assert_eq!(bits(&args[2]), ones(64), "{target}, {position}");
    }
}
