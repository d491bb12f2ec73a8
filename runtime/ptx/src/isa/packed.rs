//! Two f32 in a 64-bit register (`.f32x2`).

use super::float::{directed, flush, result};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    num::round::{self, Mode, f32_value, to_f32},
};

const QUALS: &str = "rn|rz|rm|rp ftz : f32x2";

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("add", QUALS, Kind::Float, add),
    form("sub", QUALS, Kind::Float, sub),
    form("mul", QUALS, Kind::Float, mul),
    form("fma", QUALS, Kind::Float, fma),
];

#[inline(always)]
fn both<const N: usize>(x: [u64; N], f: impl Fn([f32; N]) -> f32) -> u64 {
    let low = f(x.map(|v| f32::from_bits(v as u32)));
    let high = f(x.map(|v| f32::from_bits((v >> 32) as u32)));
    (high.to_bits() as u64) << 32 | low.to_bits() as u64
}

#[inline(always)]
fn finish<const N: usize>(x: [f32; N], ftz: bool, f: impl Fn([f32; N]) -> f32) -> f32 {
    if ftz { result::<true, false>(f(x.map(flush::<true>))) } else { result::<false, false>(f(x)) }
}

fn add(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    match directed(b) {
        None => b.map2(move |x, y| both([x, y], |x| finish(x, ftz, |[x, y]| x + y))),
        Some(mode) => b.map2(move |x, y| both([x, y], |x| finish(x, ftz, |x| sum(x, mode)))),
    }
}

fn sum([x, y]: [f32; 2], mode: Mode) -> f32 {
    to_f32(round::add(f32_value(x), f32_value(y), mode), mode)
}

fn sub(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    match directed(b) {
        None => b.map2(move |x, y| both([x, y], |x| finish(x, ftz, |[x, y]| x - y))),
        Some(mode) => b.map2(move |x, y| both([x, y], |x| finish(x, ftz, |[x, y]| sum([x, -y], mode)))),
    }
}

fn mul(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    match directed(b) {
        None => b.map2(move |x, y| both([x, y], |x| finish(x, ftz, |[x, y]| x * y))),
        Some(mode) => b.map2(move |x, y| {
            both([x, y], |x| finish(x, ftz, |[x, y]| to_f32(round::mul(f32_value(x), f32_value(y)), mode)))
        }),
    }
}

fn fma(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    match directed(b) {
        None => b.map3(move |x, y, z| both([x, y, z], |x| finish(x, ftz, |[x, y, z]| x.mul_add(y, z)))),
        Some(mode) => b.map3(move |x, y, z| {
            both([x, y, z], |x| {
                finish(x, ftz, |x| {
                    let [x, y, z] = x.map(f32_value);
                    to_f32(round::fma(x, y, z, mode), mode)
                })
            })
        }),
    }
}
