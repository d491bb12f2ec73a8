//! Memory traffic, counted by the emulator.

use crate::harness::{TARGETS, kernel, run};
use tegula_ir::{
    Elem,
    testing::{Arg, Buffer},
};

/// The counters of a copy of `n` elements by tiles of `tile`.
fn copy(elem: Elem, n: usize, tile: usize, facts: &str, warps: usize, target: &str) -> tegula_ptx::Counters {
    let text = format!(
        r#"kernel @copy(%0 "x": view<{elem}, 1{facts}>, %1 "y": view_mut<{elem}, 1{facts}>) {{
  %2 = program_id {{axis = 0}} : i32
  %3 = cast %2 : i64
  %4 = const {{value = {tile}: i64}} : i64
  %5 = mul %3, %4 : i64
  %6 = load %0, %5 : tile<{elem}, {tile}>
  store %1, %5, %6
}}
"#
    );
    let values: Vec<u64> = (0..n as u64).map(|i| i * 37 % 251 + 1).collect();
    let mut args = [Arg::View(Buffer::new(elem, &[n as i64], &values)), Arg::View(Buffer::poisoned(elem, &[n as i64]))];
    let grid = [n.div_ceil(tile) as u32, 1, 1];
    let (_, _, counters) = run(target, &kernel(&text, warps), &mut args, grid, false).unwrap_or_else(|e| panic!("{e}"));
    let [Arg::View(x), Arg::View(y)] = &args else { unreachable!() };
    assert_eq!(x.bits(), y.bits());
    counters
}

#[test]
fn contiguous_accesses_take_the_fewest_sectors_and_instructions() {
    for target in TARGETS {
        for elem in [Elem::F32, Elem::BF16, Elem::U8, Elem::F64] {
            let (n, warps) = (8192, 4);
            let c = copy(elem, n, 2048, ", unit, align16", warps, target);
            let bytes = (2 * n * elem.bytes()) as u64;
            assert_eq!(c.global_sectors, bytes / 32, "{elem}: sectors");
            assert_eq!(c.global_requests, bytes / (32 * 16), "{elem}: sixteen bytes a lane");
        }
        // An address that nothing is known of: lone elements, still side by side.
        let c = copy(Elem::F32, 4096, 1024, ", unit", 4, target);
        assert_eq!(c.global_sectors, c.global_sectors_ideal);
        assert_eq!(c.global_sectors, 2 * 4096 * 4 / 32);
    }
}

#[test]
fn an_edge_touches_nothing_outside() {
    // The emulator faults at a byte outside a buffer.
    copy(Elem::F32, 1000, 256, ", unit, align16", 2, "sm_80");
    copy(Elem::F16, 1001, 256, ", unit", 4, "sm_90a");
}

#[test]
fn a_transpose_meets_no_bank_twice() {
    for (elem, n) in [(Elem::F32, 64), (Elem::F16, 64)] {
        let text = format!(
            r#"kernel @t(%0 "x": view<{elem}, 2, unit, align16>, %1 "y": view_mut<{elem}, 2, unit, align16>) {{
  %2 = const {{value = 0: i64}} : i64
  %3 = load %0, %2, %2 : tile<{elem}, {n}, {n}>
  %4 = permute %3 {{perm = [1, 0]}} : tile<{elem}, {n}, {n}>
  store %1, %2, %2, %4
}}
"#
        );
        let values: Vec<u64> = (0..n * n).map(|i| i as u64 % 509 + 1).collect();
        let mut args = [Arg::View(Buffer::new(elem, &[n, n], &values)), Arg::View(Buffer::poisoned(elem, &[n, n]))];
        let (_, _, c) = run("sm_80", &kernel(&text, 4), &mut args, [1; 3], false).unwrap_or_else(|e| panic!("{e}"));
        let [Arg::View(x), Arg::View(y)] = &args else { unreachable!() };
        let (x, y) = (x.bits(), y.bits());
        let n = n as usize;
        assert!((0..n * n).all(|i| y[i] == x[i % n * n + i / n]));
        assert!(
            c.shared_wavefronts <= c.shared_wavefronts_ideal * if elem == Elem::F32 { 1 } else { 2 },
            "{elem}: {} wavefronts, {} at best",
            c.shared_wavefronts,
            c.shared_wavefronts_ideal
        );
    }
}
