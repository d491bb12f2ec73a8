//! Transcendental functions on f32 (polynomials on vectors) and f64 (libm, lane by lane).
//!
//! Largest errors of the f32 forms, measured over all or a dense sample of arguments against f64, are asserted in
//! `tests/math.rs`. Infinities, zeros, NaN and subnormal numbers give what IEEE 754 wants.

pub(crate) mod exp;
pub(crate) mod log;
pub(crate) mod special;
mod trig;

use super::{
    build::{Build, FCmp, V},
    cx::Cx,
};
use tegula_ir::{Elem, OpKind};

/// One of the functions on f32 or f64 registers.
pub fn apply<'c>(cx: &mut Cx<'_, 'c>, kind: OpKind, e: Elem, x: &[V<'c>]) -> V<'c> {
    let (b, avx512) = (cx.b, cx.target.avx512);
    if e == Elem::F64 {
        return match kind {
            OpKind::Rsqrt => b.divf(b.float_like(x[0], 1.0), b.sqrt(x[0])),
            OpKind::Sigmoid => {
                let (one, zero) = (b.float_like(x[0], 1.0), b.float_like(x[0], 0.0));
                let negative = b.cmpf(FCmp::Olt, x[0], zero);
                let e = libm(cx, "exp", &[b.select(negative, x[0], b.negf(x[0]))]);
                b.divf(b.select(negative, e, one), b.addf(one, e))
            }
            OpKind::Exp => libm(cx, "exp", x),
            OpKind::Exp2 => libm(cx, "exp2", x),
            OpKind::Log => libm(cx, "log", x),
            OpKind::Log2 => libm(cx, "log2", x),
            OpKind::Sin => libm(cx, "sin", x),
            OpKind::Cos => libm(cx, "cos", x),
            OpKind::Tanh => libm(cx, "tanh", x),
            OpKind::Erf => libm(cx, "erf", x),
            OpKind::Pow => libm(cx, "pow", x),
            k => unreachable!("`{}` is no function on floats", k.name()),
        };
    }
    match kind {
        OpKind::Rsqrt => b.divf(b.float_like(x[0], 1.0), b.sqrt(x[0])),
        OpKind::Exp => exp::exp(b, avx512, x[0]),
        OpKind::Exp2 => exp::exp2(b, avx512, x[0]),
        OpKind::Log => log::log(b, x[0]),
        OpKind::Log2 => log::log2(b, x[0]),
        OpKind::Sin => trig::sin(cx, x[0]),
        OpKind::Cos => trig::cos(cx, x[0]),
        OpKind::Tanh => special::tanh(b, avx512, x[0]),
        OpKind::Erf => special::erf(b, avx512, x[0]),
        OpKind::Sigmoid => special::sigmoid(b, avx512, x[0]),
        OpKind::Pow => libm(cx, "powf", x),
        k => unreachable!("`{}` is no function on floats", k.name()),
    }
}

/// A function of libm on each lane.
fn libm<'c>(cx: &mut Cx<'_, 'c>, name: &'static str, x: &[V<'c>]) -> V<'c> {
    let (b, ty) = (cx.b, cx.b.elem(x[0]));
    cx.declare(name, ty, x.len());
    match b.lanes(x[0]) {
        0 => b.call(name, x, &[ty])[0],
        n => {
            let lane = |i| b.call(name, &x.iter().map(|v| b.extract(*v, i)).collect::<Vec<_>>(), &[ty])[0];
            b.gather_lanes(&(0..n).map(lane).collect::<Vec<_>>())
        }
    }
}

/// Horner's rule with fma; the leading coefficient first.
pub(crate) fn poly<'c>(b: &Build<'c>, x: V<'c>, coefficients: &[f64]) -> V<'c> {
    let c = |v: &f64| b.float_like(x, *v);
    coefficients.iter().skip(1).fold(c(&coefficients[0]), |p, v| b.fma(p, x, c(v)))
}
