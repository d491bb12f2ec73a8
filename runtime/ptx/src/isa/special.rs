//! Division, roots and the approximate functions.

use super::{
    float::{directed, flush, result, result64},
    half::{Bf16, F16, Half},
};
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    num::{
        approx,
        round::{self, f32_value, f64_value, to_f32, to_f64},
        small::NAN32,
    },
    types::Ty,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("div", "approx|full|rn|rz|rm|rp ftz : f32 f64", Kind::Special, div),
    form("rcp", "approx|rn|rz|rm|rp ftz : f32 f64", Kind::Special, rcp),
    form("sqrt", "approx|rn|rz|rm|rp ftz : f32 f64", Kind::Special, sqrt),
    form("rsqrt", "approx ftz : f32 f64", Kind::Special, rsqrt),
    form("sin", "approx ftz : f32", Kind::Special, |b| function(b, approx::sin)),
    form("cos", "approx ftz : f32", Kind::Special, |b| function(b, approx::cos)),
    form("lg2", "approx ftz : f32", Kind::Special, |b| function(b, approx::lg2)),
    form("ex2", "approx ftz : f32 f16 f16x2 bf16 bf16x2", Kind::Special, |b| function(b, approx::ex2)),
    form("tanh", "approx : f32 f16 f16x2 bf16 bf16x2", Kind::Special, |b| function(b, approx::tanh)),
];

/// A function of f32, of both widths of 16 bits by way of f32.
fn function(b: &mut Build<'_, '_>, f: impl Fn(f32) -> f32 + Send + Sync + Copy + 'static) -> Built {
    /// The 16-bit result; subnormal inputs and outputs are kept but for `.ftz`, which ex2.ftz.bf16 always has.
    #[inline(always)]
    fn half<H: Half>(x: u16, ftz: bool, f: impl Fn(f32) -> f32) -> u16 {
        let flush = |x: u16| if ftz && x & 0x7fff < H::LEAST_NORMAL { x & 0x8000 } else { x };
        flush(H::narrow(f(H::widen(flush(x)))))
    }
    let ftz = b.quals.has("ftz");
    let both = |x: u32, g: &dyn Fn(u16) -> u16| (g((x >> 16) as u16) as u32) << 16 | g(x as u16) as u32;
    match (b.ty(0)?, ftz) {
        (Ty::F32, false) => b.map1(move |x: f32| result::<false, false>(f(x))),
        (Ty::F32, true) => b.map1(move |x: f32| result::<true, false>(f(flush::<true>(x)))),
        (Ty::F16, ftz) => b.map1(move |x: u16| half::<F16>(x, ftz, f)),
        (Ty::F16x2, ftz) => b.map1(move |x: u32| both(x, &|x| half::<F16>(x, ftz, f))),
        (Ty::Bf16, ftz) => b.map1(move |x: u16| half::<Bf16>(x, ftz, f)),
        (_, ftz) => b.map1(move |x: u32| both(x, &|x| half::<Bf16>(x, ftz, f))),
    }
}

/// `a * (1/b)`: where 1/b would be subnormal, the quotient is 0 (or NaN for an infinite a).
#[inline(always)]
fn div_approx(x: f32, y: f32) -> f32 {
    let tiny_reciprocal = y.abs() > 8.507_059e37 && y.abs() < f32::INFINITY;
    if tiny_reciprocal {
        let zero = f32::from_bits((x.to_bits() ^ y.to_bits()) & 1 << 31);
        return if x.is_infinite() || x.is_nan() { f32::NAN } else { zero };
    }
    x / y
}

fn div(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    let flushed = move |x: f32| if ftz { flush::<true>(x) } else { x };
    let finish = move |x: f32| if ftz { result::<true, false>(x) } else { result::<false, false>(x) };
    match (b.ty(0)?, b.quals.pick(&["approx", "full", "rn", "rz", "rm", "rp"])) {
        (Ty::F32, Some("approx")) => b.map2(move |x: f32, y: f32| finish(div_approx(flushed(x), flushed(y)))),
        // Full range with 2 ulp allowed: the correctly rounded quotient.
        (Ty::F32, Some("full" | "rn")) => b.map2(move |x: f32, y: f32| finish(flushed(x) / flushed(y))),
        (Ty::F32, Some(_)) => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map2(move |x: f32, y: f32| finish(to_f32(round::div(f32_value(flushed(x)), f32_value(flushed(y))), mode)))
        }
        (Ty::F64, Some("rn")) if !ftz => b.map2(|x: f64, y: f64| result64(x / y, [x, y, 0.0])),
        (Ty::F64, Some("rz" | "rm" | "rp")) if !ftz => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map2(move |x: f64, y: f64| result64(to_f64(round::div(f64_value(x), f64_value(y)), mode), [x, y, 0.0]))
        }
        (_, None) => b.error("a float `div` needs .approx, .full or a rounding mode"),
        _ => b.unsupported(),
    }
}

/// The f64 approximations keep 20 bits of the significand's head and set the rest to 0.
fn head(x: f64) -> f64 {
    if x.is_nan() { f64::from_bits(0x7fff_ffff_0000_0000) } else { f64::from_bits(x.to_bits() & !0xffff_ffff) }
}

/// Subnormal f64 to zero.
fn flush64(x: f64) -> f64 {
    if x.is_subnormal() { 0f64.copysign(x) } else { x }
}

fn rcp(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    let flushed = move |x: f32| if ftz { flush::<true>(x) } else { x };
    let finish = move |x: f32| if ftz { result::<true, false>(x) } else { result::<false, false>(x) };
    match (b.ty(0)?, b.quals.pick(&["approx", "rn", "rz", "rm", "rp"])) {
        (Ty::F32, Some("approx" | "rn")) => b.map1(move |x: f32| finish(1.0 / flushed(x))),
        (Ty::F32, Some(_)) => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map1(move |x: f32| finish(to_f32(round::div(f32_value(1.0), f32_value(flushed(x))), mode)))
        }
        (Ty::F64, Some("approx")) if ftz => b.map1(|x: f64| flush64(head(1.0 / flush64(x)))),
        (Ty::F64, Some("rn")) if !ftz => b.map1(|x: f64| result64(1.0 / x, [x, 0.0, 0.0])),
        (Ty::F64, Some("rz" | "rm" | "rp")) if !ftz => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map1(move |x: f64| result64(to_f64(round::div(f64_value(1.0), f64_value(x)), mode), [x, 0.0, 0.0]))
        }
        (_, None) => b.error("`rcp` needs .approx or a rounding mode"),
        _ => b.unsupported(),
    }
}

fn sqrt(b: &mut Build<'_, '_>) -> Built {
    let ftz = b.quals.has("ftz");
    let flushed = move |x: f32| if ftz { flush::<true>(x) } else { x };
    let finish = move |x: f32| if ftz { result::<true, false>(x) } else { result::<false, false>(x) };
    match (b.ty(0)?, b.quals.pick(&["approx", "rn", "rz", "rm", "rp"])) {
        (Ty::F32, Some("approx" | "rn")) => b.map1(move |x: f32| {
            let x = flushed(x);
            // The test is on the operand: LLVM 22 loses one on the root itself in AVX-512 code.
            if x >= 0.0 { finish(x.sqrt()) } else { NAN32 }
        }),
        (Ty::F32, Some(_)) => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map1(move |x: f32| finish(to_f32(round::sqrt(f32_value(flushed(x))), mode)))
        }
        (Ty::F64, Some("rn")) if !ftz => b.map1(|x: f64| result64(x.sqrt(), [x, 0.0, 0.0])),
        (Ty::F64, Some("rz" | "rm" | "rp")) if !ftz => {
            let mode = directed(b).unwrap_or(round::Mode::Rn);
            b.map1(move |x: f64| result64(to_f64(round::sqrt(f64_value(x)), mode), [x, 0.0, 0.0]))
        }
        (_, None) => b.error("`sqrt` needs .approx or a rounding mode"),
        _ => b.unsupported(),
    }
}

fn rsqrt(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.quals.has("ftz")) {
        (Ty::F32, false) => b.map1(|x: f32| result::<false, false>(approx::rsqrt(x))),
        (Ty::F32, true) => b.map1(|x: f32| result::<true, false>(approx::rsqrt(flush::<true>(x)))),
        (_, false) => b.map1(|x: f64| result64(1.0 / x.sqrt(), [x, 0.0, 0.0])),
        (_, true) => b.map1(|x: f64| flush64(head(1.0 / flush64(x).sqrt()))),
    }
}
