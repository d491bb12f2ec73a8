//! f16 and bf16 arithmetic, one value or two in a register.
//!
//! Operands are exact in f32. A sum or product rounded to f32 and then to 16 bits rounds as if once (f32 has more than
//! twice the bits); an fma goes through f64 and round-to-odd, which makes the second rounding right.

use super::float::extremum32;
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    num::small,
    types::Ty,
};

const TYPES: &str = "rn ftz sat relu : f16 f16x2 bf16 bf16x2";

/// This family's rows.
pub const FORMS: &[Form] = &[
    form("add", TYPES, Kind::Half, |b| binary(b, What::Add)),
    form("sub", TYPES, Kind::Half, |b| binary(b, What::Sub)),
    form("mul", TYPES, Kind::Half, |b| binary(b, What::Mul)),
    form("min", "ftz NaN xorsign abs : f16 f16x2 bf16 bf16x2", Kind::Half, |b| binary(b, What::Min)),
    form("max", "ftz NaN xorsign abs : f16 f16x2 bf16 bf16x2", Kind::Half, |b| binary(b, What::Max)),
    form("fma", "rn ftz sat relu oob : f16 f16x2 bf16 bf16x2", Kind::Half, fma),
    form("neg", "ftz : f16 f16x2 bf16 bf16x2", Kind::Half, |b| sign(b, false)),
    form("abs", "ftz : f16 f16x2 bf16 bf16x2", Kind::Half, |b| sign(b, true)),
];

/// A 16-bit format.
pub trait Half: Send + Sync + 'static {
    /// The largest subnormal's magnitude + 1: magnitudes below are flushed by `.ftz`.
    const LEAST_NORMAL: u16;
    /// Exact.
    fn widen(x: u16) -> f32;
    /// To nearest even.
    fn narrow(x: f32) -> u16;
}
/// f16.
pub struct F16;
/// bf16.
pub struct Bf16;
impl Half for F16 {
    const LEAST_NORMAL: u16 = 0x0400;
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        small::f16_to_f32(x)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        small::f32_to_f16(x)
    }
}
impl Half for Bf16 {
    const LEAST_NORMAL: u16 = 0x0080;
    #[inline(always)]
    fn widen(x: u16) -> f32 {
        small::bf16_to_f32(x)
    }
    #[inline(always)]
    fn narrow(x: f32) -> u16 {
        small::f32_to_bf16(x)
    }
}

/// The bit twiddling of [`F16`].
pub mod f16 {
    use super::*;
    /// Sum.
    pub fn add(x: u16, y: u16) -> u16 {
        F16::narrow(F16::widen(x) + F16::widen(y))
    }
    /// Smaller.
    pub fn min(x: u16, y: u16) -> u16 {
        F16::narrow(extremum32::<false>(F16::widen(x), F16::widen(y), false))
    }
    /// Larger.
    pub fn max(x: u16, y: u16) -> u16 {
        F16::narrow(extremum32::<true>(F16::widen(x), F16::widen(y), false))
    }
}
/// The bit twiddling of [`Bf16`].
pub mod bf16 {
    use super::*;
    /// Sum.
    pub fn add(x: u16, y: u16) -> u16 {
        Bf16::narrow(Bf16::widen(x) + Bf16::widen(y))
    }
    /// Smaller.
    pub fn min(x: u16, y: u16) -> u16 {
        Bf16::narrow(extremum32::<false>(Bf16::widen(x), Bf16::widen(y), false))
    }
    /// Larger.
    pub fn max(x: u16, y: u16) -> u16 {
        Bf16::narrow(extremum32::<true>(Bf16::widen(x), Bf16::widen(y), false))
    }
}

/// Both halves of a register.
#[inline(always)]
pub fn pair(x: u32, y: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    (f((x >> 16) as u16, (y >> 16) as u16) as u32) << 16 | f(x as u16, y as u16) as u32
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub fn fma_once<H: Half>(a: u16, b: u16, c: u16) -> u16 {
    let (a, b, c) = (H::widen(a) as f64, H::widen(b) as f64, H::widen(c) as f64);
    // Exact: at most 22 bits.
    let p = a * b;
    let s = p + c;
    // What the sum lost (Knuth's two-sum).
    let v = s - p;
    let lost = (p - (s - v)) + (c - v);
    let odd = to_odd(s, lost);
    // f64 to f32, again to odd.
    let r = odd as f32;
    let r = to_odd32(r, odd);
    H::narrow(r)
}

/// `s + lost` rounded to odd: with something lost, the neighbour whose last bit is set.
#[inline(always)]
fn to_odd(s: f64, lost: f64) -> f64 {
    let bits = s.to_bits();
    // The true value lies below s in magnitude when the signs differ.
    let below = (lost < 0.0) != (s < 0.0);
    let moved = if below { bits.wrapping_sub(1) } else { bits };
    if lost != 0.0 && s.is_finite() { f64::from_bits(moved | 1) } else { s }
}

/// `exact` rounded to odd, from its nearest f32.
#[inline(always)]
fn to_odd32(r: f32, exact: f64) -> f32 {
    let bits = r.to_bits();
    let back = r as f64;
    let moved = if back.abs() > exact.abs() { bits.wrapping_sub(1) } else { bits };
    if back != exact && exact.is_finite() { f32::from_bits(moved | 1) } else { r }
}

/// An instruction of two sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Add,
    Sub,
    Mul,
    Min,
    Max,
}

/// Modifiers of a 16-bit instruction.
#[derive(Clone, Copy)]
struct Modes {
    ftz: bool,
    sat: bool,
    relu: bool,
    nan: bool,
    xorsign: bool,
}

impl Modes {
    fn of(b: &Build<'_, '_>) -> Modes {
        Modes {
            ftz: b.quals.has("ftz"),
            sat: b.quals.has("sat"),
            relu: b.quals.has("relu"),
            nan: b.quals.has("NaN"),
            xorsign: b.quals.has("xorsign"),
        }
    }

    #[inline(always)]
    fn flush<H: Half>(self, x: u16) -> u16 {
        if self.ftz && x & 0x7fff < H::LEAST_NORMAL { x & 0x8000 } else { x }
    }

    #[inline(always)]
    fn result<H: Half>(self, x: u16) -> u16 {
        let x = self.flush::<H>(x);
        if !self.sat && !self.relu {
            return x;
        }
        let v = H::widen(x);
        if self.sat {
            let v = if v > 0.0 { v } else { 0.0 };
            return H::narrow(if v < 1.0 { v } else { 1.0 });
        }
        // `.relu` keeps NaN.
        if v < 0.0 || x == 0x8000 { 0 } else { x }
    }
}

#[inline(always)]
fn apply<H: Half>(what: What, m: Modes, x: u16, y: u16) -> u16 {
    let (x, y) = (H::widen(m.flush::<H>(x)), H::widen(m.flush::<H>(y)));
    if m.xorsign {
        let sign = (((x.to_bits() ^ y.to_bits()) >> 16) & 0x8000) as u16;
        let r = match what {
            What::Max => extremum32::<true>(x.abs(), y.abs(), m.nan),
            _ => extremum32::<false>(x.abs(), y.abs(), m.nan),
        };
        return if r.is_nan() { 0x7fff } else { H::narrow(r) | sign };
    }
    let r = match what {
        What::Add => x + y,
        What::Sub => x - y,
        What::Mul => x * y,
        What::Min => extremum32::<false>(x, y, m.nan),
        What::Max => extremum32::<true>(x, y, m.nan),
    };
    m.result::<H>(H::narrow(r))
}

fn binary(b: &mut Build<'_, '_>, what: What) -> Built {
    fn make<H: Half>(b: &mut Build<'_, '_>, what: What, packed: bool) -> Built {
        let m = Modes::of(b);
        macro_rules! with {
            ($what:expr) => {
                if packed {
                    b.map2(move |x: u32, y: u32| pair(x, y, |x, y| apply::<H>($what, m, x, y)))
                } else {
                    b.map2(move |x: u16, y: u16| apply::<H>($what, m, x, y))
                }
            };
        }
        match what {
            What::Add => with!(What::Add),
            What::Sub => with!(What::Sub),
            What::Mul => with!(What::Mul),
            What::Min => with!(What::Min),
            What::Max => with!(What::Max),
        }
    }
    if b.quals.has("relu") || (b.quals.has("xorsign") != b.quals.has("abs")) {
        return b.unsupported();
    }
    match b.ty(0)? {
        Ty::F16 => make::<F16>(b, what, false),
        Ty::F16x2 => make::<F16>(b, what, true),
        Ty::Bf16 => make::<Bf16>(b, what, false),
        _ => make::<Bf16>(b, what, true),
    }
}

fn fma(b: &mut Build<'_, '_>) -> Built {
    fn make<H: Half>(b: &mut Build<'_, '_>, packed: bool) -> Built {
        let m = Modes::of(b);
        let f = move |x: u16, y: u16, z: u16| {
            m.result::<H>(fma_once::<H>(m.flush::<H>(x), m.flush::<H>(y), m.flush::<H>(z)))
        };
        if packed {
            b.map3(move |x: u32, y: u32, z: u32| {
                (f((x >> 16) as u16, (y >> 16) as u16, (z >> 16) as u16) as u32) << 16
                    | f(x as u16, y as u16, z as u16) as u32
            })
        } else {
            b.map3(f)
        }
    }
    if b.quals.has("oob") || (b.quals.has("sat") && b.quals.has("relu")) {
        return b.unsupported();
    }
    match b.ty(0)? {
        Ty::F16 => make::<F16>(b, false),
        Ty::F16x2 => make::<F16>(b, true),
        Ty::Bf16 => make::<Bf16>(b, false),
        _ => make::<Bf16>(b, true),
    }
}

fn sign(b: &mut Build<'_, '_>, abs: bool) -> Built {
    let m = Modes::of(b);
    let (least, packed) = match b.ty(0)? {
        Ty::F16 => (F16::LEAST_NORMAL, false),
        Ty::F16x2 => (F16::LEAST_NORMAL, true),
        Ty::Bf16 => (Bf16::LEAST_NORMAL, false),
        _ => (Bf16::LEAST_NORMAL, true),
    };
    let f = move |x: u16| {
        let x = if m.ftz && x & 0x7fff < least { x & 0x8000 } else { x };
        if abs { x & 0x7fff } else { x ^ 0x8000 }
    };
    if packed { b.map1(move |x: u32| (f((x >> 16) as u16) as u32) << 16 | f(x as u16) as u32) } else { b.map1(f) }
}
