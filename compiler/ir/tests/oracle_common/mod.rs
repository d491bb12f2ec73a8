//! Running single ops on the oracle, and float formats described by the crates `half` and `float8` alone.
#![allow(dead_code)] // Each test binary uses a part.

use tegula_ir::{
    Elem, Kernel, OpKind, TileType, Value,
    oracle::{self, Options, OracleError, Report},
    testing::{Arg, Buffer, K},
};

/// Runs a kernel of one program; gives the contents of argument `out`.
pub fn run_for(kernel: &Kernel, args: &mut [Arg], out: usize) -> Vec<u64> {
    run(kernel, args, &Options::default()).unwrap_or_else(|e| panic!("{e}\n{kernel}"));
    match &args[out] {
        Arg::View(b) => b.bits(),
        _ => panic!("argument {out} is no view"),
    }
}

/// Runs a kernel of one program.
pub fn run(kernel: &Kernel, args: &mut [Arg], options: &Options) -> Result<Report, OracleError> {
    let mut args: Vec<_> = args.iter_mut().map(Arg::for_oracle).collect();
    oracle::run(kernel, &mut args, [1, 1, 1], options)
}

/// An elementwise op on rows of patterns.
pub fn elementwise(kind: OpKind, operands: &[(Elem, &[u64])], result: Elem) -> Vec<u64> {
    let n = operands[0].1.len();
    function(operands, result, &[n], |k, x| k.op(kind, x, TileType::new(result, [n])))
}

/// A function of tiles of rank 1 whose result has this type.
pub fn function(
    operands: &[(Elem, &[u64])],
    result: Elem,
    shape: &[usize],
    f: impl FnOnce(&mut K, &[Value]) -> Value,
) -> Vec<u64> {
    let mut k = K::new("function");
    let views: Vec<Value> = operands.iter().map(|(e, _)| k.view("x", *e, 1)).collect();
    let out = k.view_mut("y", result, shape.len());
    let tiles: Vec<Value> = views.iter().zip(operands).map(|(&v, (_, bits))| k.read(v, &[bits.len()])).collect();
    let y = f(&mut k, &tiles);
    k.write(out, y);
    let extents: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let mut args: Vec<Arg> =
        operands.iter().map(|(e, bits)| Arg::View(Buffer::new(*e, &[bits.len() as i64], bits))).collect();
    args.push(Arg::View(Buffer::poisoned(result, &extents)));
    run_for(&k.finish(), &mut args, operands.len())
}

/// The value of a pattern, by crates that the oracle does not use.
pub fn value(elem: Elem, bits: u64) -> f64 {
    match elem {
        Elem::F64 => f64::from_bits(bits),
        Elem::F32 => f32::from_bits(bits as u32).into(),
        Elem::F16 => half::f16::from_bits(bits as u16).into(),
        Elem::BF16 => half::bf16::from_bits(bits as u16).into(),
        Elem::F8E4M3 => float8::F8E4M3::from_bits(bits as u8).to_f64(),
        Elem::F8E5M2 => float8::F8E5M2::from_bits(bits as u8).to_f64(),
        e => panic!("`{e}` is no float"),
    }
}

/// The finite values of a small float format, ascending from +0; the index is the pattern.
pub fn table(elem: Elem) -> Vec<f64> {
    let t: Vec<f64> = (0..1u64 << (elem.bits() - 1)).map(|b| value(elem, b)).take_while(|v| v.is_finite()).collect();
    assert!(t.is_sorted());
    t
}

/// The pattern that values at or beyond the rounding limit get: infinity, or the largest for 8-bit types.
pub fn overflow(elem: Elem, table: &[f64]) -> u64 {
    match elem {
        Elem::F16 | Elem::BF16 => table.len() as u64,
        _ => table.len() as u64 - 1,
    }
}

/// Nearest even by the table: `order(i, half)` compares the exact value with entry i, or with the middle between i and
/// i + 1 (beyond the last entry: one more step of the same size).
pub fn nearest(elem: Elem, table: &[f64], order: impl Fn(f64) -> std::cmp::Ordering) -> u64 {
    use std::cmp::Ordering::*;
    // The last entry not above the value.
    let below = table.partition_point(|&t| order(t) != Less) - 1;
    let last = below + 1 == table.len();
    let above = if last { table[below] + (table[below] - table[below - 1]) } else { table[below + 1] };
    let up = match order((table[below] + above) / 2.0) {
        Greater => true,
        Equal => below % 2 == 1,
        Less => false,
    };
    match (up, last) {
        (true, true) => overflow(elem, table),
        _ => (below + up as usize) as u64,
    }
}

/// A deterministic generator.
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        tegula_ir::testing::random::next(&mut self.0)
    }
    /// `n` patterns of the type, all equally likely: half of the floats are far from 1, some are NaN.
    pub fn patterns(&mut self, elem: Elem, n: usize) -> Vec<u64> {
        (0..n).map(|_| if elem.bits() == 64 { self.bits() } else { self.bits() & ((1 << elem.bits()) - 1) }).collect()
    }
    /// In 0..n.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }
}

pub const SMALL: [Elem; 4] = [Elem::F16, Elem::BF16, Elem::F8E4M3, Elem::F8E5M2];
