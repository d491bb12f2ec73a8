//! sin and cos. The argument is reduced in f64 by π/2 in two parts, which is exact enough below 2^28; what is larger (a
//! rare branch) goes to libm.

use super::{
    super::{
        build::{FCmp, V},
        cx::Cx,
    },
    libm, poly,
};

/// Sine (radians).
pub fn sin<'c>(cx: &mut Cx<'_, 'c>, x: V<'c>) -> V<'c> {
    reduced(cx, x, 0, "sinf")
}

/// Cosine (radians).
pub fn cos<'c>(cx: &mut Cx<'_, 'c>, x: V<'c>) -> V<'c> {
    reduced(cx, x, 1, "cosf")
}

fn reduced<'c>(cx: &mut Cx<'_, 'c>, x: V<'c>, quarter: i64, name: &'static str) -> V<'c> {
    let b = cx.b;
    let wide = b.extf(x, b.f64());
    let n = b.round_even(b.mulf(wide, b.float_like(wide, std::f64::consts::FRAC_2_PI)));
    let r = b.fma(n, b.float_like(wide, -std::f64::consts::FRAC_PI_2), wide);
    let r = b.truncf(b.fma(n, b.float_like(wide, -6.123233995736766e-17), r), b.f32());
    let limit = b.float_like(x, 268435456.0);
    let small = b.cmpf(FCmp::Olt, b.absf(x), limit);
    let n = b.select(small, n, b.float_like(n, 0.0));
    let q = b.add_c(b.fptosi(n, b.i32()), quarter);

    let z = b.mulf(r, r);
    let s = poly(b, z, &[-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1]);
    let s = b.fma(b.mulf(s, z), r, r);
    let c = poly(b, z, &[2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2]);
    let c = b.fma(b.mulf(c, z), z, b.fma(z, b.float_like(z, -0.5), b.float_like(z, 1.0)));
    let zero = b.int_like(q, 0);
    let is_sin = b.cmp(super::super::build::Cmp::Eq, b.and_c(q, 1), zero);
    let v = b.select(is_sin, s, c);
    let sign = b.shl_c(b.and_c(q, 2), 30);
    let v = b.bitcast(b.xor(b.bitcast(v, b.i32()), sign), b.f32());

    // Too large, infinite or NaN.
    let ty = b.vec(b.f32(), b.lanes(x));
    let all = b.all(small);
    cx.declare(name, b.f32(), 1);
    b.if_(all, &[ty], || vec![v], || vec![b.select(small, v, libm(cx, name, &[x]))])[0]
}
