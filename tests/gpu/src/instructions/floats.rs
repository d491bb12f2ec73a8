//! Float arithmetic in every rounding mode, minima and maxima with NaNs, signs, comparisons.

use super::{
    case::{Case, Tolerance::Exact, map},
    formats::*,
    samples,
};
use crate::raw::Level::{self, *};

const FAMILY: &str = "floats";

/// PTX name, width, bits of exponent and fraction.
type Type = (&'static str, &'static str, u32, u32);
const SINGLE: Type = ("f32", "b32", 8, 23);
const DOUBLE: Type = ("f64", "b64", 11, 52);
const HALF: Type = ("f16", "b16", 5, 10);
const BRAIN: Type = ("bf16", "b16", 8, 7);

fn unit(ty: Type) -> Unit {
    Unit::Float { exponent: ty.2, fraction: ty.3, infinities: true }
}

/// `op.type` of so many operands.
fn op(out: &mut Vec<Case>, op: &str, ty: Type, level: Level, operands: usize) {
    let name = format!("{op}.{}", ty.0);
    let columns = samples::floats(ty.2, ty.3, operands, 4000, 30 + operands as u64);
    let inputs: Vec<(&str, Vec<u64>)> = columns.into_iter().map(|c| (ty.1, c)).collect();
    let names = ["%a", "%b", "%c"][..operands].join(", ");
    out.push(map(FAMILY, &name, level, &format!("{name} %d, {names};"), &inputs, ty.1, unit(ty), Exact));
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    for ty in [SINGLE, DOUBLE] {
        for mode in ["rn", "rz", "rm", "rp"] {
            for (name, operands) in
                [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("rcp", 1), ("sqrt", 1)]
            {
                op(&mut out, &format!("{name}.{mode}"), ty, Sm80, operands);
            }
        }
        for name in ["neg", "abs"] {
            op(&mut out, name, ty, Sm80, 1);
        }
        op(&mut out, "copysign", ty, Sm80, 2);
        for name in ["min", "max"] {
            op(&mut out, name, ty, Sm80, 2);
        }
    }
    for name in ["add.rn.ftz", "mul.rn.ftz", "add.rn.sat", "mul.rn.sat", "div.rn.ftz", "min.NaN", "max.NaN", "max.ftz"]
    {
        op(&mut out, name, SINGLE, Sm80, 2);
    }
    for name in ["fma.rn.ftz", "fma.rn.sat", "fma.rn.ftz.sat"] {
        op(&mut out, name, SINGLE, Sm80, 3);
    }
    for name in ["neg.ftz", "abs.ftz", "rcp.rn.ftz", "sqrt.rn.ftz"] {
        op(&mut out, name, SINGLE, Sm80, 1);
    }
    for name in ["min.xorsign.abs", "max.NaN.xorsign.abs"] {
        op(&mut out, name, SINGLE, Sm86, 2);
    }
    for (ty, level) in [(HALF, Sm80), (BRAIN, Sm90)] {
        for name in ["add.rn", "sub.rn", "mul.rn"] {
            op(&mut out, name, ty, level, 2);
        }
        for name in ["fma.rn", "fma.rn.relu"] {
            op(&mut out, name, ty, Sm80, 3);
        }
        for name in ["min", "max", "min.NaN", "max.NaN"] {
            op(&mut out, name, ty, Sm80, 2);
        }
        op(&mut out, "max.xorsign.abs", ty, Sm86, 2);
        for name in ["neg", "abs"] {
            op(&mut out, name, ty, Sm80, 1);
        }
    }
    for name in ["add.rn.ftz", "mul.rn.sat"] {
        op(&mut out, name, HALF, Sm80, 2);
    }
    packed(&mut out);
    compared(&mut out);
    out
}

/// Two halves in a register.
fn packed(out: &mut Vec<Case>) {
    for (ty, unit, level) in [("f16x2", F16, Sm80), ("bf16x2", BF16, Sm90)] {
        for (name, operands) in [("add.rn", 2), ("mul.rn", 2), ("fma.rn", 3), ("min", 2), ("max.NaN", 2)] {
            let level = if name.contains("rn") && operands == 2 { level } else { Sm80 };
            let name = format!("{name}.{ty}");
            let (e, f) = if ty == "f16x2" { (5, 10) } else { (8, 7) };
            let low = samples::floats(e, f, operands, 4000, 41);
            let high = samples::floats(e, f, operands, 4000, 42);
            let pair = |(l, h): (Vec<u64>, Vec<u64>)| -> Vec<u64> {
                l.iter().zip(h.iter().rev()).map(|(l, h)| h << 16 | l).collect()
            };
            let inputs: Vec<(&str, Vec<u64>)> = low.into_iter().zip(high).map(|c| ("b32", pair(c))).collect();
            let names = ["%a", "%b", "%c"][..operands].join(", ");
            out.push(map(FAMILY, &name, level, &format!("{name} %d, {names};"), &inputs, "b32", unit, Exact));
        }
    }
}

fn compared(out: &mut Vec<Case>) {
    for ty in [SINGLE, HALF] {
        let columns = samples::floats(ty.2, ty.3, 2, 2000, 50);
        let inputs: Vec<(&str, Vec<u64>)> = columns.into_iter().map(|c| (ty.1, c)).collect();
        // One bit for each comparison.
        let tests = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
        let mut body = String::from("mov.b32 %d, 0;");
        for (i, test) in tests.iter().enumerate() {
            body += &format!(" setp.{test}.{} %p1, %a, %b; @%p1 or.b32 %d, %d, {};", ty.0, 1 << i);
        }
        let name = format!("setp.*.{}", ty.0);
        out.push(map(FAMILY, &name, Sm80, &body, &inputs, "b32", Unit::Bits(32), Exact));
    }
    let mut body = String::from("mov.b32 %d, 0;");
    for (i, test) in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"].iter().enumerate() {
        body += &format!(" testp.{test}.f32 %p1, %a; @%p1 or.b32 %d, %d, {};", 1 << i);
    }
    let inputs = [("b32", samples::exponents(8))];
    out.push(map(FAMILY, "testp.*.f32", Sm80, &body, &inputs, "b32", Unit::Bits(32), Exact));
}
