//! Transcendental functions: our own, on scalars, without libdevice. Those of f32 are the CPU's polynomials, so that both
//! give about the same errors; f64 has its own.

mod double;
mod pow;
mod trig;

use super::super::{
    build::{Build, V},
    cpu::math::{exp, log, special},
};
use tegula_ir::{Elem, OpKind};

/// One of the functions on f32 or f64.
pub fn apply<'c>(b: &Build<'c>, kind: OpKind, e: Elem, x: &[V<'c>]) -> V<'c> {
    let v = x[0];
    if kind == OpKind::Rsqrt {
        return b.divf(b.float_like(v, 1.0), b.sqrt(v));
    }
    if e == Elem::F64 {
        return match kind {
            OpKind::Exp => double::exp(b, v),
            OpKind::Exp2 => double::exp2(b, v),
            OpKind::Log => double::log(b, v),
            OpKind::Log2 => double::log2(b, v),
            OpKind::Sin => trig::double(b, v, 0),
            OpKind::Cos => trig::double(b, v, 1),
            OpKind::Tanh => double::tanh(b, v),
            OpKind::Erf => double::erf(b, v),
            OpKind::Sigmoid => {
                let one = b.float_like(v, 1.0);
                b.divf(one, b.addf(one, double::exp(b, b.negf(v))))
            }
            OpKind::Pow => pow::pow(b, v, x[1]),
            k => unreachable!("`{}` is no function on floats", k.name()),
        };
    }
    match kind {
        OpKind::Exp => exp::exp(b, false, v),
        OpKind::Exp2 => exp::exp2(b, false, v),
        OpKind::Log => log::log(b, v),
        OpKind::Log2 => log::log2(b, v),
        OpKind::Sin => trig::single(b, v, 0),
        OpKind::Cos => trig::single(b, v, 1),
        OpKind::Tanh => special::tanh(b, false, v),
        OpKind::Erf => special::erf(b, false, v),
        OpKind::Sigmoid => special::sigmoid(b, false, v),
        // In f64, where nothing has to be said about the error of y · log x.
        OpKind::Pow => b.truncf(pow::pow(b, b.extf(v, b.f64()), b.extf(x[1], b.f64())), b.f32()),
        k => unreachable!("`{}` is no function on floats", k.name()),
    }
}
