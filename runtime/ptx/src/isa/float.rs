//! f32 and f64 arithmetic with every rounding mode, flushing and saturation.
//!
//! Round-to-nearest uses the host's instructions; the directed modes go through [`crate::num::round`]. NaN results of
//! f32 are 0x7fffffff. f64 instructions keep a NaN operand's payload (the first one's, made quiet).

use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    num::{
        round::{self, Mode, f32_value, f64_value, to_f32, to_f64},
        small::NAN32,
    },
    types::Ty,
};

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("add", "rn|rz|rm|rp ftz sat : f32 f64", Kind::Float, |b| sum(b, false)),
    form("sub", "rn|rz|rm|rp ftz sat : f32 f64", Kind::Float, |b| sum(b, true)),
    form("mul", "rn|rz|rm|rp ftz sat : f32 f64", Kind::Float, mul),
    form("fma", "rn|rz|rm|rp ftz sat : f32 f64", Kind::Float, fma),
    form("mad", "rn|rz|rm|rp ftz sat : f32 f64", Kind::Float, fma),
    form("neg", "ftz : f32 f64", Kind::Float, neg),
    form("abs", "ftz : f32 f64", Kind::Float, abs),
    form("min", "ftz NaN xorsign abs : f32 f64", Kind::Float, |b| extremum(b, false)),
    form("max", "ftz NaN xorsign abs : f32 f64", Kind::Float, |b| extremum(b, true)),
    form("copysign", ": f32 f64", Kind::Float, copysign),
    form("testp", "finite|infinite|number|notanumber|normal|subnormal : f32 f64", Kind::Compare, testp),
];

/// Subnormals to zero of their sign.
#[inline(always)]
pub fn flush<const FTZ: bool>(x: f32) -> f32 {
    let b = x.to_bits();
    if FTZ && b & 0x7f80_0000 == 0 { f32::from_bits(b & 0x8000_0000) } else { x }
}

/// A result: flushed, clamped to [0, 1] (NaN to 0), or with the canonical NaN.
#[inline(always)]
pub fn result<const FTZ: bool, const SAT: bool>(x: f32) -> f32 {
    let x = flush::<FTZ>(x);
    if SAT {
        let x = if x > 0.0 { x } else { 0.0 };
        return if x < 1.0 { x } else { 1.0 };
    }
    if x.is_nan() { NAN32 } else { x }
}

/// An f64 result with the payload of the first NaN operand.
#[inline(always)]
pub fn result64(x: f64, operands: [f64; 3]) -> f64 {
    if !x.is_nan() {
        return x;
    }
    let quiet = |x: f64| f64::from_bits(x.to_bits() | 1 << 51);
    let [a, b, c] = operands;
    if a.is_nan() {
        quiet(a)
    } else if b.is_nan() {
        quiet(b)
    } else if c.is_nan() {
        quiet(c)
    } else {
        f64::from_bits(0xfff8_0000_0000_0000)
    }
}

/// The rounding mode, when it is not to nearest.
pub fn directed(b: &Build<'_, '_>) -> Option<Mode> {
    match b.quals.pick(&["rz", "rm", "rp"])? {
        "rz" => Some(Mode::Rz),
        "rm" => Some(Mode::Rm),
        _ => Some(Mode::Rp),
    }
}

/// One kernel for each combination of `.ftz` and `.sat`.
macro_rules! modes2 {
    ($b:expr, |$x:ident, $y:ident| $e:expr) => {
        match ($b.quals.has("ftz"), $b.quals.has("sat")) {
            (false, false) => $b.map2(|$x: f32, $y: f32| result::<false, false>($e)),
            (false, true) => $b.map2(|$x: f32, $y: f32| result::<false, true>($e)),
            (true, false) => $b.map2(|$x: f32, $y: f32| {
                let ($x, $y) = (flush::<true>($x), flush::<true>($y));
                result::<true, false>($e)
            }),
            (true, true) => $b.map2(|$x: f32, $y: f32| {
                let ($x, $y) = (flush::<true>($x), flush::<true>($y));
                result::<true, true>($e)
            }),
        }
    };
}

/// Flushing and saturation decided at run time, for the slow modes.
fn slow(x: f32, ftz: bool, sat: bool) -> f32 {
    match (ftz, sat) {
        (false, false) => result::<false, false>(x),
        (false, true) => result::<false, true>(x),
        (true, false) => result::<true, false>(x),
        (true, true) => result::<true, true>(x),
    }
}

fn flush_if(x: f32, ftz: bool) -> f32 {
    if ftz { flush::<true>(x) } else { x }
}

/// f64 has neither flushing nor saturation.
fn plain64(b: &Build<'_, '_>) -> Result<(), crate::error::Error> {
    if b.quals.has("ftz") || b.quals.has("sat") { b.unsupported() } else { Ok(()) }
}

fn sum(b: &mut Build<'_, '_>, minus: bool) -> Built {
    let (ftz, sat) = (b.quals.has("ftz"), b.quals.has("sat"));
    match (b.ty(0)?, directed(b)) {
        (Ty::F32, None) if minus => modes2!(b, |x, y| x - y),
        (Ty::F32, None) => modes2!(b, |x, y| x + y),
        (Ty::F32, Some(mode)) => b.map2(move |x: f32, y: f32| {
            let (x, y) = (flush_if(x, ftz), flush_if(if minus { -y } else { y }, ftz));
            slow(to_f32(round::add(f32_value(x), f32_value(y), mode), mode), ftz, sat)
        }),
        (_, mode) => {
            plain64(b)?;
            match mode {
                None if minus => b.map2(|x: f64, y: f64| result64(x - y, [x, y, 0.0])),
                None => b.map2(|x: f64, y: f64| result64(x + y, [x, y, 0.0])),
                Some(mode) => b.map2(move |x: f64, y: f64| {
                    let z = if minus { -y } else { y };
                    result64(to_f64(round::add(f64_value(x), f64_value(z), mode), mode), [x, y, 0.0])
                }),
            }
        }
    }
}

fn mul(b: &mut Build<'_, '_>) -> Built {
    let (ftz, sat) = (b.quals.has("ftz"), b.quals.has("sat"));
    match (b.ty(0)?, directed(b)) {
        (Ty::F32, None) => modes2!(b, |x, y| x * y),
        (Ty::F32, Some(mode)) => b.map2(move |x: f32, y: f32| {
            let (x, y) = (flush_if(x, ftz), flush_if(y, ftz));
            slow(to_f32(round::mul(f32_value(x), f32_value(y)), mode), ftz, sat)
        }),
        (_, mode) => {
            plain64(b)?;
            match mode {
                None => b.map2(|x: f64, y: f64| result64(x * y, [x, y, 0.0])),
                Some(mode) => b.map2(move |x: f64, y: f64| {
                    result64(to_f64(round::mul(f64_value(x), f64_value(y)), mode), [x, y, 0.0])
                }),
            }
        }
    }
}

fn fma(b: &mut Build<'_, '_>) -> Built {
    let (ftz, sat) = (b.quals.has("ftz"), b.quals.has("sat"));
    match (b.ty(0)?, directed(b), ftz, sat) {
        (Ty::F32, None, false, false) => b.map3(|x: f32, y: f32, z: f32| result::<false, false>(x.mul_add(y, z))),
        (Ty::F32, None, false, true) => b.map3(|x: f32, y: f32, z: f32| result::<false, true>(x.mul_add(y, z))),
        (Ty::F32, None, true, false) => b.map3(|x: f32, y: f32, z: f32| {
            result::<true, false>(flush::<true>(x).mul_add(flush::<true>(y), flush::<true>(z)))
        }),
        (Ty::F32, None, true, true) => b.map3(|x: f32, y: f32, z: f32| {
            result::<true, true>(flush::<true>(x).mul_add(flush::<true>(y), flush::<true>(z)))
        }),
        (Ty::F32, Some(mode), ..) => b.map3(move |x: f32, y: f32, z: f32| {
            let [x, y, z] = [x, y, z].map(|v| f32_value(flush_if(v, ftz)));
            slow(to_f32(round::fma(x, y, z, mode), mode), ftz, sat)
        }),
        (_, mode, ..) => {
            plain64(b)?;
            match mode {
                None => b.map3(|x: f64, y: f64, z: f64| result64(x.mul_add(y, z), [x, y, z])),
                Some(mode) => b.map3(move |x: f64, y: f64, z: f64| {
                    let exact = round::fma(f64_value(x), f64_value(y), f64_value(z), mode);
                    result64(to_f64(exact, mode), [x, y, z])
                }),
            }
        }
    }
}

fn neg(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.quals.has("ftz")) {
        (Ty::F32, true) => b.map1(|x: f32| -flush::<true>(x)),
        (Ty::F32, false) => b.map1(|x: f32| -x),
        _ => b.map1(|x: f64| -x),
    }
}

fn abs(b: &mut Build<'_, '_>) -> Built {
    match (b.ty(0)?, b.quals.has("ftz")) {
        (Ty::F32, true) => b.map1(|x: f32| flush::<true>(x).abs()),
        (Ty::F32, false) => b.map1(|x: f32| x.abs()),
        _ => b.map1(|x: f64| x.abs()),
    }
}

/// The smaller (or larger) number; -0 is below +0; a NaN loses against a number unless `nan`.
#[inline(always)]
pub fn extremum32<const MAX: bool>(x: f32, y: f32, nan: bool) -> f32 {
    let less = if MAX { x > y } else { x < y };
    let more = if MAX { x < y } else { x > y };
    let equal = if MAX { x.to_bits() & y.to_bits() } else { x.to_bits() | y.to_bits() };
    let r = if less {
        x
    } else if more {
        y
    } else {
        f32::from_bits(equal)
    };
    let r = if y.is_nan() { x } else { r };
    let r = if x.is_nan() { y } else { r };
    let lost = (x.is_nan() && y.is_nan()) || (nan && (x.is_nan() || y.is_nan()));
    if lost { NAN32 } else { r }
}

/// As [`extremum32`].
#[inline(always)]
fn extremum64<const MAX: bool>(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        return if x.is_nan() && y.is_nan() {
            result64(f64::NAN, [x, y, 0.0])
        } else if x.is_nan() {
            y
        } else {
            x
        };
    }
    let (less, more) = if MAX { (x > y, x < y) } else { (x < y, x > y) };
    if less {
        x
    } else if more {
        y
    } else if MAX {
        f64::from_bits(x.to_bits() & y.to_bits())
    } else {
        f64::from_bits(x.to_bits() | y.to_bits())
    }
}

fn extremum(b: &mut Build<'_, '_>, max: bool) -> Built {
    if b.ty(0)? == Ty::F64 {
        if b.quals.has("NaN") || b.quals.has("xorsign") || b.quals.has("ftz") || b.quals.has("abs") {
            return b.unsupported();
        }
        return if max { b.map2(extremum64::<true>) } else { b.map2(extremum64::<false>) };
    }
    let (ftz, nan) = (b.quals.has("ftz"), b.quals.has("NaN"));
    if b.inst.operands.len() == 4 {
        // Three sources.
        let xorsign = b.quals.has("xorsign");
        if xorsign {
            return b.unsupported();
        }
        let f = move |x: f32, y: f32, z: f32| {
            let [x, y, z] = [x, y, z].map(|v| flush_if(v, ftz));
            match max {
                true => extremum32::<true>(extremum32::<true>(x, y, nan), z, nan),
                false => extremum32::<false>(extremum32::<false>(x, y, nan), z, nan),
            }
        };
        return b.map3(f);
    }
    if b.quals.has("xorsign") {
        if !b.quals.has("abs") {
            return b.unsupported();
        }
        return b.map2(move |x: f32, y: f32| {
            let (x, y) = (flush_if(x, ftz), flush_if(y, ftz));
            let sign = (x.to_bits() ^ y.to_bits()) & 1 << 31;
            let r = match max {
                true => extremum32::<true>(x.abs(), y.abs(), nan),
                false => extremum32::<false>(x.abs(), y.abs(), nan),
            };
            if r.is_nan() { NAN32 } else { f32::from_bits(r.to_bits() | sign) }
        });
    }
    if b.quals.has("abs") {
        return b.unsupported();
    }
    match (max, ftz, nan) {
        (false, false, false) => b.map2(|x: f32, y: f32| extremum32::<false>(x, y, false)),
        (false, false, true) => b.map2(|x: f32, y: f32| extremum32::<false>(x, y, true)),
        (true, false, false) => b.map2(|x: f32, y: f32| extremum32::<true>(x, y, false)),
        (true, false, true) => b.map2(|x: f32, y: f32| extremum32::<true>(x, y, true)),
        (false, true, nan) => {
            b.map2(move |x: f32, y: f32| extremum32::<false>(flush::<true>(x), flush::<true>(y), nan))
        }
        (true, true, nan) => b.map2(move |x: f32, y: f32| extremum32::<true>(flush::<true>(x), flush::<true>(y), nan)),
    }
}

/// The second source's magnitude with the first one's sign.
fn copysign(b: &mut Build<'_, '_>) -> Built {
    match b.ty(0)? {
        Ty::F32 => b.map2(|x: f32, y: f32| y.copysign(x)),
        _ => b.map2(|x: f64, y: f64| y.copysign(x)),
    }
}

fn testp(b: &mut Build<'_, '_>) -> Built {
    macro_rules! test {
        ($t:ty, $f:expr) => {{
            b.operands(2)?;
            let (p, q) = b.pred_pair(0)?;
            let a = b.src::<$t>(1)?;
            let p = p.unwrap_or_else(|| b.scratch_pred());
            let f = $f;
            let types = std::marker::PhantomData::<fn($t)>;
            b.kernel(crate::exec::lanes::Compare { p, q, a, b: a, with: None, f: move |x: $t, _: $t| f(x), types })
        }};
    }
    macro_rules! tests {
        ($t:ty) => {
            match b.quals.pick(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"]) {
                Some("finite") => test!($t, |x: $t| x.is_finite()),
                Some("infinite") => test!($t, |x: $t| x.is_infinite()),
                Some("number") => test!($t, |x: $t| !x.is_nan()),
                Some("notanumber") => test!($t, |x: $t| x.is_nan()),
                Some("normal") => test!($t, |x: $t| x.is_normal()),
                Some(_) => test!($t, |x: $t| x.is_subnormal()),
                None => b.error("`testp` needs a property such as .finite"),
            }
        };
    }
    match b.ty(0)? {
        Ty::F32 => tests!(f32),
        _ => tests!(f64),
    }
}
