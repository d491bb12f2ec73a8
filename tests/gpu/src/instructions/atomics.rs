//! Atomics: new and old value of one operation on a cell of its own, and exact sums of many on one cell.

use super::{
    case::{Case, Tolerance::Exact, kernel, words},
    formats::*,
    samples,
};
use crate::raw::{
    Arg, Job,
    Level::{self, *},
};

const FAMILY: &str = "atomics";

/// Each thread does `name` with its operand on its own cell of `bits`; the cells and, unless it is a `red`, the old
/// values are the result.
fn cells(name: &str, level: Level, bits: u32, operands: Vec<Vec<u64>>, unit: Unit) -> Case {
    let bytes = bits as usize / 8;
    let n = operands[0].len() / 128 * 128;
    let gives = name.starts_with("atom");
    let of = |v: &[u64]| -> Vec<u8> { v[..n].iter().flat_map(|v| v.to_le_bytes()[..bytes].to_vec()).collect() };
    let register = format!("b{bits}");
    let second = operands.get(2).map(|_| ", %c").unwrap_or("");
    let shared = name.contains(".shared");
    let cell = if shared { "[%s]" } else { "[%x3]" };
    let do_it = if gives { format!("{name} %d, {cell}, %a{second};") } else { format!("{name} {cell}, %a;") };
    let (before, after) = if shared {
        (
            format!("ld.global.{register} %v, [%x3]; st.shared.{register} [%s], %v;"),
            format!("ld.shared.{register} %v, [%s]; st.global.{register} [%x3], %v;"),
        )
    } else {
        (String::new(), String::new())
    };
    let load_c = if second.is_empty() {
        String::new()
    } else {
        format!("ld.param.u64 %x1, [third]; add.s64 %x2, %x1, %x0; ld.global.{register} %c, [%x2];")
    };
    let store = if gives {
        format!("ld.param.u64 %x1, [old]; add.s64 %x2, %x1, %x0; st.global.{register} [%x2], %d;")
    } else {
        String::new()
    };
    let body = format!(
        ".shared .align 16 .b8 room[1024]; .reg .{register} %a, %c, %d, %v; .reg .b32 %t, %r<4>, %s; .reg .b64 %x<4>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %t, %r1, 128, %r2; mul.wide.u32 %x0, %t, {bytes};
  mov.u32 %r3, room; mad.lo.u32 %s, %r2, {bytes}, %r3;
  ld.param.u64 %x1, [operand]; add.s64 %x2, %x1, %x0; ld.global.{register} %a, [%x2];
  ld.param.u64 %x1, [cells]; add.s64 %x3, %x1, %x0; {load_c}
  {before} {do_it} {after} {store}
  ret;"
    );
    let mut params = ".param .u64 operand, .param .u64 cells".to_string();
    let mut args = vec![Arg::In(of(&operands[0])), Arg::InOut(of(&operands[1]))];
    if !second.is_empty() {
        params += ", .param .u64 third";
        args.push(Arg::In(of(&operands[2])));
    }
    if gives {
        params += ", .param .u64 old";
        args.push(Arg::Out(n * bytes));
    }
    let grid = [n as u32 / 128, 1, 1];
    let ptx = kernel(level, &params, &body);
    let job = Job { ptx, grid, block: [128, 1, 1], cluster: None, shared: 0, args };
    Case { family: FAMILY, name: name.into(), level, unit, tolerance: Exact, job }
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    let integers = |bits: u32, n: usize| samples::integers(&vec![bits; n], 1000, 80);
    for space in ["global", "shared"] {
        for (op, ty, bits) in [
            ("add", "u32", 32),
            ("add", "u64", 64),
            ("inc", "u32", 32),
            ("dec", "u32", 32),
            ("min", "s32", 32),
            ("max", "s32", 32),
            ("min", "u32", 32),
            ("max", "u64", 64),
            ("min", "s64", 64),
            ("and", "b32", 32),
            ("or", "b32", 32),
            ("xor", "b64", 64),
            ("exch", "b32", 32),
            ("exch", "b64", 64),
        ] {
            out.push(cells(&format!("atom.{space}.{op}.{ty}"), Sm80, bits, integers(bits, 2), Unit::Bits(bits)));
        }
        for bits in [16, 32, 64] {
            // A third of the comparisons hold.
            let mut v = integers(bits, 3);
            let cells_ = v[1].clone();
            v[0].iter_mut().zip(cells_).step_by(3).for_each(|(a, b)| *a = b);
            out.push(cells(&format!("atom.{space}.cas.b{bits}"), Sm80, bits, v, Unit::Bits(bits)));
        }
        for (ty, bits, level, unit) in [("f32", 32, Sm80, F32), ("f64", 64, Sm80, F64)] {
            let (e, f) = if bits == 32 { (8, 23) } else { (11, 52) };
            out.push(cells(&format!("atom.{space}.add.{ty}"), level, bits, samples::floats(e, f, 2, 2000, 81), unit));
        }
        for (ty, level, unit) in [("f16", Sm80, F16), ("bf16", Sm90, BF16)] {
            let (e, f) = if ty == "f16" { (5, 10) } else { (8, 7) };
            let single = samples::floats(e, f, 2, 2000, 82);
            out.push(cells(&format!("atom.{space}.add.noftz.{ty}"), level, 16, single, unit));
            let (low, high) = (samples::floats(e, f, 2, 2000, 83), samples::floats(e, f, 2, 2000, 84));
            let pair = |(l, h): (Vec<u64>, Vec<u64>)| -> Vec<u64> {
                l.iter().zip(h.iter().rev()).map(|(l, h)| h << 16 | l).collect()
            };
            let pairs = low.into_iter().zip(high).map(pair).collect();
            out.push(cells(&format!("atom.{space}.add.noftz.{ty}x2"), level, 32, pairs, unit));
        }
    }
    out.push(cells("red.global.add.f32", Sm80, 32, samples::floats(8, 23, 2, 2000, 85), F32));
    out.push(crowd("red.global.add.u32", Sm80, "mov.u32 %r4, %t;", "u32", |n| (0..n).fold(0, u32::wrapping_add)));
    out.push(crowd("red.global.max.s32", Sm80, "mul.lo.u32 %r4, %t, 40503; sub.s32 %r4, %r4, 9000000;", "s32", |n| {
        (0..n).map(|t| (t as i32).wrapping_mul(40503) - 9_000_000).max().unwrap_or(0) as u32
    }));
    out
}

/// 1024 threads of eight blocks on one cell, by an operation whose order does not matter. The kernel itself adds what the
/// cell should hold beside it, from the host: two equal words are right.
fn crowd(name: &str, level: Level, operand: &str, ty: &str, want: impl Fn(u32) -> u32) -> Case {
    let start = if ty == "s32" { i32::MIN as u32 } else { 0 };
    let body = format!(
        ".reg .b32 %t, %r<5>; .reg .b64 %x1; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %t, %r1, 128, %r2;
  ld.param.u64 %x1, [cells]; {operand} {name} [%x1], %r4; ret;"
    );
    let args = vec![Arg::InOut(words([start, want(1024)]))];
    let ptx = kernel(level, ".param .u64 cells", &body);
    let job = Job { ptx, grid: [8, 1, 1], block: [128, 1, 1], cluster: None, shared: 0, args };
    let name = format!("{name} by many");
    Case { family: FAMILY, name, level, unit: Unit::Bits(32), tolerance: Exact, job }
}
