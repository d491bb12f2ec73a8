//! Integer arithmetic and bit operations.

use super::{
    case::{Case, Tolerance::Exact, map},
    formats::Unit,
    samples,
};
use crate::raw::Level::Sm80;

const FAMILY: &str = "integers";

fn width(bits: u32) -> &'static str {
    match bits {
        16 => "b16",
        32 => "b32",
        _ => "b64",
    }
}

/// `name` on operands of `bits[1..]` into `bits[0]`; `$` in a body stands for the operands.
fn op(out: &mut Vec<Case>, name: &str, body: &str, bits: &[u32]) {
    let columns = samples::integers(&bits[1..], 1500, 60);
    let inputs: Vec<(&str, Vec<u64>)> = columns.into_iter().zip(&bits[1..]).map(|(c, b)| (width(*b), c)).collect();
    let names = ["%a", "%b", "%c"][..inputs.len()].join(", ");
    let body = body.replace('$', &names);
    out.push(map(FAMILY, name, Sm80, &body, &inputs, width(bits[0]), Unit::Bits(bits[0]), Exact));
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    let mut plain = |name: &str, bits: &[u32]| op(&mut out, name, &format!("{name} %d, $;"), bits);
    for n in [16u32, 32, 64] {
        for ty in ["u", "s"] {
            for name in ["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"] {
                plain(&format!("{name}.{ty}{n}"), &[n, n, n]);
            }
            for name in ["mad.lo", "sad"] {
                plain(&format!("{name}.{ty}{n}"), &[n, n, n, n]);
            }
            if n < 64 {
                plain(&format!("mul.wide.{ty}{n}"), &[2 * n, n, n]);
                plain(&format!("mad.wide.{ty}{n}"), &[2 * n, n, n, 2 * n]);
            }
        }
        for name in ["abs", "neg"] {
            plain(&format!("{name}.s{n}"), &[n, n]);
        }
        for name in ["and", "or", "xor"] {
            plain(&format!("{name}.b{n}"), &[n, n, n]);
        }
        for name in ["not", "cnot"] {
            plain(&format!("{name}.b{n}"), &[n, n]);
        }
        for name in ["shl.b", "shr.u", "shr.s"] {
            plain(&format!("{name}{n}"), &[n, n, 32]);
        }
    }
    for name in ["add.sat.s32", "sub.sat.s32", "mul24.lo.s32", "mul24.hi.u32"] {
        plain(name, &[32, 32, 32]);
    }
    for name in ["mad.hi.u32", "mad.hi.s32", "mad.hi.sat.s32", "mad24.lo.u32", "mad24.hi.s32"] {
        plain(name, &[32, 32, 32, 32]);
    }
    for ty in ["u32.u32", "u32.s32", "s32.u32", "s32.s32"] {
        plain(&format!("dp4a.{ty}"), &[32, 32, 32, 32]);
        plain(&format!("dp2a.lo.{ty}"), &[32, 32, 32, 32]);
        plain(&format!("dp2a.hi.{ty}"), &[32, 32, 32, 32]);
    }
    for name in ["shf.l.clamp.b32", "shf.r.clamp.b32", "shf.l.wrap.b32", "shf.r.wrap.b32"] {
        plain(name, &[32, 32, 32, 32]);
    }
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        plain(&format!("prmt.b32{mode}"), &[32, 32, 32, 32]);
    }
    for n in [32u32, 64] {
        plain(&format!("bfe.u{n}"), &[n, n, 32, 32]);
        plain(&format!("bfe.s{n}"), &[n, n, 32, 32]);
        for name in ["bfind.u", "bfind.s", "bfind.shiftamt.u", "bfind.shiftamt.s", "clz.b", "popc.b"] {
            plain(&format!("{name}{n}"), &[32, n]);
        }
        plain(&format!("brev.b{n}"), &[n, n]);
    }
    for name in ["bmsk.clamp.b32", "bmsk.wrap.b32", "szext.clamp.s32", "szext.wrap.u32"] {
        plain(name, &[32, 32, 32]);
    }
    for n in [32u32, 64] {
        for (at, length) in [(0, 0), (0, 8), (5, 11), (31, 4), (20, 40), (0, 64), (200, 3), (3, 255)] {
            let name = format!("bfi.b{n} at {at}, {length}");
            op(&mut out, &name, &format!("bfi.b{n} %d, $, {at}, {length};"), &[n, n, n]);
        }
    }
    for table in [0x80u32, 0xe8, 0x96, 0x1b, 0x3c] {
        op(&mut out, &format!("lop3.b32 {table:#04x}"), &format!("lop3.b32 %d, $, {table};"), &[32, 32, 32, 32]);
    }
    let add = ".reg .b64 %lo; add.cc.u64 %lo, %a, %b; addc.u64 %d, %c, %a;";
    op(&mut out, "add.cc, addc.u64", add, &[64, 64, 64, 64]);
    let sub = ".reg .b64 %lo; sub.cc.u64 %lo, %a, %b; subc.u64 %d, %c, %a;";
    op(&mut out, "sub.cc, subc.u64", sub, &[64, 64, 64, 64]);
    let mad = ".reg .b32 %lo; mad.lo.cc.u32 %lo, %a, %b, %c; madc.hi.u32 %d, %a, %b, 7;";
    op(&mut out, "mad.lo.cc, madc.hi.u32", mad, &[32, 32, 32, 32]);
    out
}
