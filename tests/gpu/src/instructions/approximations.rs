//! The approximate functions: their bits are the device's own, their error is bounded by the PTX manual.

use super::{
    case::{
        Case,
        Tolerance::{self, *},
        map,
    },
    formats::*,
    samples,
};
use crate::raw::Level::{self, *};

const FAMILY: &str = "approximations";

/// Every exponent and sign, and what is usual densely.
fn inputs(low: f32, high: f32) -> Vec<u64> {
    let mut v = samples::exponents(24);
    v.extend(samples::between(low, high, 3000));
    v
}

fn one(name: &str, level: Level, input: (&str, Vec<u64>), unit: Unit, tolerance: Tolerance) -> Case {
    map(FAMILY, name, level, &format!("{name} %d, %a;"), std::slice::from_ref(&input), input.0, unit, tolerance)
}

pub(super) fn cases() -> Vec<Case> {
    let mut out = vec![];
    // Units in the last place that the manual allows, and one more for the emulator's own rounding. Sine and cosine are
    // bounded absolutely, which is many units near their zeros: no bound here, the table says how many.
    for (op, low, high, ulps) in [
        ("ex2.approx", -130.0, 130.0, Ulp(3)),
        ("lg2.approx", 0.25, 4.0, Order),
        ("rcp.approx", 1.0, 2.0, Ulp(2)),
        ("rsqrt.approx", 1.0, 4.0, Ulp(4)),
        ("sqrt.approx", 1.0, 4.0, Ulp(4)),
        ("sin.approx", 0.0, 7.0, Order),
        ("cos.approx", 0.0, 7.0, Order),
    ] {
        for ftz in ["", ".ftz"] {
            out.push(one(&format!("{op}{ftz}.f32"), Sm80, ("b32", inputs(low, high)), F32, ulps));
        }
    }
    // A relative error of 2^-11, so 2^12 units.
    out.push(one("tanh.approx.f32", Sm80, ("b32", inputs(0.0, 10.0)), F32, Ulp(1 << 13)));
    for (op, level, unit) in [
        ("tanh.approx.f16", Sm80, F16),
        ("tanh.approx.bf16", Sm90, BF16),
        ("ex2.approx.f16", Sm80, F16),
        ("ex2.approx.ftz.bf16", Sm90, BF16),
    ] {
        out.push(one(op, level, ("b16", samples::all(16)), unit, Ulp(4)));
    }
    let pairs: Vec<(&str, Vec<u64>)> = samples::floats(8, 23, 2, 6000, 20).into_iter().map(|c| ("b32", c)).collect();
    for (name, tolerance) in [
        ("div.approx.f32", Order),
        ("div.approx.ftz.f32", Order),
        ("div.full.f32", Ulp(3)),
        ("div.full.ftz.f32", Ulp(3)),
    ] {
        out.push(map(FAMILY, name, Sm80, &format!("{name} %d, %a, %b;"), &pairs, "b32", F32, tolerance));
    }
    out
}
