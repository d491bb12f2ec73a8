//! `cvt`: exhaustive from 8 and 16 bits, dense about rounding points from f32, edges and random ones from integers.

use super::{
    case::{Case, Tolerance::Exact, map},
    formats::*,
    samples,
};
use crate::raw::Level::{self, *};

const FAMILY: &str = "conversions";

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    widening(&mut out);
    narrowing(&mut out);
    small(&mut out);
    to_integers(&mut out);
    from_integers(&mut out);
    out
}

fn one(name: &str, level: Level, input: (&str, Vec<u64>), to: &str, unit: Unit) -> Case {
    map(FAMILY, name, level, &format!("{name} %d, %a;"), &[input], to, unit, Exact)
}

fn widening(out: &mut Vec<Case>) {
    let all = || ("b16", samples::all(16));
    out.push(one("cvt.f32.f16", Sm80, all(), "b32", F32));
    out.push(one("cvt.ftz.f32.f16", Sm80, all(), "b32", F32));
    out.push(one("cvt.f64.f16", Sm80, all(), "b64", F64));
    out.push(one("cvt.f32.bf16", Sm90, all(), "b32", F32));
    out.push(one("cvt.rn.bf16.f16", Sm90, all(), "b16", BF16));
    out.push(one("cvt.rn.f16.bf16", Sm90, all(), "b16", F16));
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        out.push(one(&format!("cvt.{mode}.f16.f16"), Sm80, all(), "b16", F16));
    }
    out.push(one("cvt.f64.f32", Sm80, ("b32", samples::exponents(16)), "b64", F64));
}

fn narrowing(out: &mut Vec<Case>) {
    let f32s = || ("b32", samples::narrowing());
    for mode in ["rn", "rz", "rm", "rp"] {
        out.push(one(&format!("cvt.{mode}.f16.f32"), Sm80, f32s(), "b16", F16));
    }
    for name in ["cvt.rn.ftz.f16.f32", "cvt.rn.relu.f16.f32"] {
        out.push(one(name, Sm80, f32s(), "b16", F16));
    }
    for name in ["cvt.rn.bf16.f32", "cvt.rz.bf16.f32", "cvt.rn.relu.bf16.f32"] {
        out.push(one(name, Sm80, f32s(), "b16", BF16));
    }
    out.push(one("cvt.rna.tf32.f32", Sm80, f32s(), "b32", F32));
    out.push(one("cvt.rn.tf32.f32", Sm90, f32s(), "b32", F32));
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        out.push(one(&format!("cvt.{mode}.f32.f32"), Sm80, ("b32", samples::exponents(16)), "b32", F32));
    }
    out.push(one("cvt.sat.f32.f32", Sm80, ("b32", samples::exponents(16)), "b32", F32));
    let doubles = || ("b64", samples::floats(11, 52, 1, 4000, 5).remove(0));
    for mode in ["rn", "rz", "rm", "rp"] {
        out.push(one(&format!("cvt.{mode}.f32.f64"), Sm80, doubles(), "b32", F32));
    }
    out.push(one("cvt.rn.f16.f64", Sm80, doubles(), "b16", F16));
    // Two at once: the first source is the upper half.
    for ty in ["f16x2", "bf16x2"] {
        for mode in ["rn", "rz", "rn.relu"] {
            let name = format!("cvt.{mode}.{ty}.f32");
            let columns = samples::floats(8, 23, 2, 4000, 6);
            let inputs: Vec<(&str, Vec<u64>)> = columns.into_iter().map(|c| ("b32", c)).collect();
            let unit = if ty == "f16x2" { F16 } else { BF16 };
            out.push(map(FAMILY, &name, Sm80, &format!("{name} %d, %a, %b;"), &inputs, "b32", unit, Exact));
        }
    }
}

/// fp8, in pairs.
fn small(out: &mut Vec<Case>) {
    for (ty, unit) in [("e4m3", E4M3), ("e5m2", E5M2)] {
        for relu in ["", ".relu"] {
            // Both bytes are converted; all pairs of patterns.
            let name = format!("cvt.rn{relu}.f16x2.{ty}x2");
            out.push(one(&name, Sm89, ("b16", samples::all(16)), "b32", F16));
            let name = format!("cvt.rn.satfinite{relu}.{ty}x2.f16x2");
            let body = format!("mov.b32 %r5, {{%a, %b}}; {name} %d, %r5;");
            let reversed = samples::all(16).into_iter().rev().collect();
            let inputs = [("b16", samples::all(16)), ("b16", reversed)];
            out.push(map(FAMILY, &name, Sm89, &body, &inputs, "b16", unit, Exact));
            let name = format!("cvt.rn.satfinite{relu}.{ty}x2.f32");
            let inputs = [("b32", samples::narrowing()), ("b32", samples::narrowing().into_iter().rev().collect())];
            out.push(map(FAMILY, &name, Sm89, &format!("{name} %d, %a, %b;"), &inputs, "b16", unit, Exact));
        }
    }
}

fn to_integers(out: &mut Vec<Case>) {
    let f32s = || {
        let mut v = samples::exponents(12);
        // Halves between integers, and about the ends of each type.
        v.extend((-600..600).map(|i| u64::from((i as f32 * 0.5).to_bits())));
        v.extend([2147483648.0f32, 2147483520.0, 4294967040.0, 9223372036854775808.0].map(|x| u64::from(x.to_bits())));
        ("b32", v)
    };
    for mode in ["rni", "rzi", "rmi", "rpi"] {
        for ty in ["s32", "u32"] {
            out.push(one(&format!("cvt.{mode}.{ty}.f32"), Sm80, f32s(), "b32", Unit::Bits(32)));
        }
    }
    for ty in ["s64", "u64"] {
        out.push(one(&format!("cvt.rni.{ty}.f32"), Sm80, f32s(), "b64", Unit::Bits(64)));
        out.push(one(&format!("cvt.rzi.{ty}.f32"), Sm80, f32s(), "b64", Unit::Bits(64)));
    }
    for ty in ["s16", "u16", "s8", "u8"] {
        out.push(one(&format!("cvt.rzi.{ty}.f32"), Sm80, f32s(), "b16", Unit::Bits(16)));
    }
    for ty in ["s32", "u32", "s64"] {
        let to = if ty == "s64" { "b64" } else { "b32" };
        let doubles = ("b64", samples::floats(11, 52, 1, 4000, 7).remove(0));
        let unit = Unit::Bits(if ty == "s64" { 64 } else { 32 });
        out.push(one(&format!("cvt.rzi.{ty}.f64"), Sm80, doubles, to, unit));
        out.push(one(&format!("cvt.rni.{ty}.f16"), Sm80, ("b16", samples::all(16)), to, unit));
    }
}

fn from_integers(out: &mut Vec<Case>) {
    let of = |bits: u32| {
        let mut v = samples::integers(&[bits], 3000, 8).remove(0);
        // Ties of f32, whose fraction has 24 bits.
        if bits > 24 {
            v.extend((0..2000u64).map(|i| (1 << (bits - 1)) - 1000 + i));
            v.extend((0..2000u64).map(|i| (1 << 25) + i));
        }
        v
    };
    for mode in ["rn", "rz", "rm", "rp"] {
        for (ty, bits, width) in [("s32", 32, "b32"), ("u32", 32, "b32"), ("s64", 64, "b64"), ("u64", 64, "b64")] {
            out.push(one(&format!("cvt.{mode}.f32.{ty}"), Sm80, (width, of(bits)), "b32", F32));
        }
        out.push(one(&format!("cvt.{mode}.f64.s64"), Sm80, ("b64", of(64)), "b64", F64));
    }
    for ty in ["s16", "u16"] {
        out.push(one(&format!("cvt.rn.f16.{ty}"), Sm80, ("b16", samples::all(16)), "b16", F16));
        out.push(one(&format!("cvt.rn.bf16.{ty}"), Sm90, ("b16", samples::all(16)), "b16", BF16));
    }
    for (name, from, to, bits) in [
        ("cvt.sat.s32.s64", "b64", "b32", 32),
        ("cvt.sat.u32.s64", "b64", "b32", 32),
        ("cvt.sat.u8.s64", "b64", "b16", 16),
        ("cvt.sat.s8.s32", "b32", "b32", 32),
        ("cvt.sat.u16.s32", "b32", "b16", 16),
        ("cvt.s64.s8", "b32", "b64", 64),
    ] {
        let v = of(if from == "b64" { 64 } else { 32 });
        out.push(one(name, Sm80, (from, v), to, Unit::Bits(bits)));
    }
    let inputs =
        [("b32", of(32)), ("b32", of(32).into_iter().rev().collect()), ("b32", vec![0x0102_0304, 0x7fff_8000])];
    for ty in ["s8", "u8"] {
        let name = format!("cvt.pack.sat.{ty}.s32.b32");
        let body = format!("{name} %d, %a, %b, %c;");
        out.push(map(FAMILY, &name, Sm80, &body, &inputs, "b32", Unit::Bits(32), Exact));
    }
}
