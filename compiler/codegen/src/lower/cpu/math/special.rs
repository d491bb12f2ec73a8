//! tanh, erf and sigmoid (Cephes' polynomials for the first two).

use super::{
    super::build::{Build, FCmp, V},
    exp::exp,
    poly,
};

/// Hyperbolic tangent.
pub fn tanh<'c>(b: &Build<'c>, avx512: bool, x: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let a = b.absf(x);
    let z = b.mulf(x, x);
    let p = poly(b, z, &[-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1]);
    let small = b.fma(b.mulf(p, z), x, x);
    let e = exp(b, avx512, b.addf(a, a));
    let large = b.subf(c(1.0), b.divf(c(2.0), b.addf(e, c(1.0))));
    b.select(b.cmpf(FCmp::Olt, a, c(0.625)), small, b.copysign(large, x))
}

/// Error function.
pub fn erf<'c>(b: &Build<'c>, avx512: bool, x: V<'c>) -> V<'c> {
    let c = |v: f64| b.float_like(x, v);
    let a = b.absf(x);
    let z = b.mulf(x, x);
    let small = b.mulf(
        x,
        poly(
            b,
            z,
            &[
                7.853861353153693e-5,
                -8.010193625184903e-4,
                5.188327685732524e-3,
                -2.685381193529856e-2,
                1.128358514861418e-1,
                -3.7612625824233e-1,
                1.12837916572671,
            ],
        ),
    );
    // 1 − erfc, which is exp(−a²)/a times a polynomial in 1/a². Beyond 10 it is nothing.
    let a10 = b.select(b.cmpf(FCmp::Ogt, a, c(10.0)), c(10.0), a);
    let q = b.divf(c(1.0), a10);
    let y = b.mulf(q, q);
    let near = poly(
        b,
        y,
        &[
            2.326819970068386e-2,
            -1.387039388740657e-1,
            3.687424674597105e-1,
            -5.824733027278666e-1,
            6.210004621745983e-1,
            -4.944515323274145e-1,
            3.404879937665872e-1,
            -2.741127028184656e-1,
            5.638259427386472e-1,
        ],
    );
    let far = poly(
        b,
        y,
        &[
            -1.047766399936249e1,
            1.297719955372516e1,
            -7.495518717768503,
            2.921019019210786,
            -1.0152652792027,
            4.218463358204948e-1,
            -2.820767439740514e-1,
            5.641895067754075e-1,
        ],
    );
    let p = b.select(b.cmpf(FCmp::Olt, a, c(2.0)), near, far);
    let erfc = b.mulf(b.mulf(exp(b, avx512, b.negf(b.mulf(a10, a10))), q), p);
    let large = b.copysign(b.subf(c(1.0), erfc), x);
    b.select(b.cmpf(FCmp::Uno, x, x), x, b.select(b.cmpf(FCmp::Olt, a, c(1.0)), small, large))
}

/// 1/(1 + exp(−x)), for negative x as exp(x)/(1 + exp(x)): no power overflows, and subnormal results are right.
pub fn sigmoid<'c>(b: &Build<'c>, avx512: bool, x: V<'c>) -> V<'c> {
    let (one, zero) = (b.float_like(x, 1.0), b.float_like(x, 0.0));
    let negative = b.cmpf(FCmp::Olt, x, zero);
    let e = exp(b, avx512, b.select(negative, x, b.negf(x)));
    b.divf(b.select(negative, e, one), b.addf(one, e))
}
