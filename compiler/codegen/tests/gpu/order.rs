//! Bits depend on the axis alone: not on the number of warps, nor on the other extents, nor on how a tile is cut.

use crate::harness::{Rng, TARGETS, bits, kernel, run};
use tegula_ir::{
    Elem,
    testing::{Arg, Buffer},
};

/// Rows of f32 whose sums round differently in every order.
fn rows(m: usize, n: usize) -> Vec<u64> {
    let mut rng = Rng(7);
    let one: Vec<u64> = (0..n)
        .map(|_| {
            let v = (rng.unit() as f32 - 0.5) * 2f32.powi((rng.next() % 20) as i32);
            u64::from(v.to_bits())
        })
        .collect();
    one.iter().copied().cycle().take(m * n).collect()
}

/// What `op` (from %3, a tile m × n, to %4 of shape `result`) gives on so many warps.
fn results(op: &str, m: usize, n: usize, result: [usize; 2], warps: usize, target: &str) -> Vec<u64> {
    let [p, q] = result;
    let text = format!(
        r#"kernel @k(%0 "x": view<f32, 2, unit, align16>, %1 "y": view_mut<f32, 2, unit, align16>) {{
  %2 = const {{value = 0: i64}} : i64
  %3 = load %0, %2, %2 : tile<f32, {m}, {n}>
  %4 = {op} : tile<f32, {p}, {q}>
  store %1, %2, %2, %4
}}
"#
    );
    let mut args = [
        Arg::View(Buffer::new(Elem::F32, &[m as i64, n as i64], &rows(m, n))),
        Arg::View(Buffer::poisoned(Elem::F32, &[p as i64, q as i64])),
    ];
    run(target, &kernel(&text, warps), &mut args, [1; 3], false).unwrap_or_else(|e| panic!("{e}"));
    bits(&args[1])
}

#[test]
fn sums_of_rows_have_one_order() {
    for n in [16, 64, 80, 100, 512, 1000] {
        let first = results("reduce %3 {axis = 1, kind = sum}", 1, n, [1, 1], 4, "sm_80")[0];
        for (m, warps) in [(1, 1), (1, 2), (1, 8), (2, 4), (8, 4), (8, 1), (5, 2)] {
            for target in TARGETS {
                let all = results("reduce %3 {axis = 1, kind = sum}", m, n, [m, 1], warps, target);
                assert!(
                    all.iter().all(|b| *b == first),
                    "{m} × {n} on {warps} warps of {target}: {all:x?}, not {first:x}"
                );
            }
        }
    }
}

#[test]
fn sums_of_columns_have_one_order() {
    for m in [3, 16, 48] {
        let first = results("reduce %3 {axis = 0, kind = sum}", m, 64, [1, 64], 4, "sm_80");
        for (n, warps) in [(64, 1), (64, 2), (64, 8)] {
            assert_eq!(results("reduce %3 {axis = 0, kind = sum}", m, n, [1, n], warps, "sm_80"), first);
        }
    }
}

#[test]
fn prefix_sums_have_one_order() {
    for n in [9, 16, 40, 256] {
        let first = results("scan %3 {axis = 1, kind = sum}", 1, n, [1, n], 4, "sm_80");
        for (m, warps) in [(1, 1), (4, 2), (3, 8)] {
            let all = results("scan %3 {axis = 1, kind = sum}", m, n, [m, n], warps, "sm_80");
            assert!(all.chunks(n).all(|row| row == first), "{m} × {n} on {warps} warps");
        }
    }
}
