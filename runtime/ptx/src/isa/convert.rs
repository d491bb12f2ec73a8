//! `cvt` between all types, and `cvt.pack`.
//!
//! Frequent conversions are vector loops; every other combination goes through one exact path (`general`).

use super::float::flush;
use crate::{
    counters::Kind,
    decode::{
        build::Build,
        form::{Built, Form, form},
    },
    exec::{
        lanes::{Map1, Map2, Map3},
        regs::Slot,
    },
    num::{
        round::{self, Exact, Format, Mode, Value},
        small::{self, NAN32},
    },
    types::Ty,
};
use std::marker::PhantomData;

/// This family's rows.
pub const FORMS: &[Form] = &[
    form(
        "cvt",
        "rn|rz|rm|rp|rna|rni|rzi|rmi|rpi ftz sat satfinite relu : u8 s8 u16 s16 u32 s32 u64 s64 f16 bf16 f32 f64 \
         f16x2 bf16x2 tf32 e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 ue8m0x2",
        Kind::Convert,
        convert,
    ),
    form("cvt.pack", "sat : u16 s16 u8 s8 u4 s4 s32 b32", Kind::Convert, pack),
];

/// What the qualifiers ask.
#[derive(Clone, Copy, PartialEq, Eq)]
struct How {
    mode: Mode,
    /// The mode names rounding to an integer (`.rni`) or to the type (`.rn`), or nothing.
    integral: bool,
    ftz: bool,
    sat: bool,
    satfinite: bool,
    relu: bool,
}

fn how(b: &Build<'_, '_>) -> How {
    let word = b.quals.pick(&["rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"]);
    let mode = match word {
        Some("rz" | "rzi") => Mode::Rz,
        Some("rm" | "rmi") => Mode::Rm,
        Some("rp" | "rpi") => Mode::Rp,
        Some("rna") => Mode::Rna,
        _ => Mode::Rn,
    };
    let has = |w| b.quals.has(w);
    let integral = word.is_some_and(|w| w.len() == 3 && w.ends_with('i'));
    How { mode, integral, ftz: has("ftz"), sat: has("sat"), satfinite: has("satfinite"), relu: has("relu") }
}

fn format(ty: Ty) -> Option<Format> {
    Some(match ty {
        Ty::F16 => Format::F16,
        Ty::Bf16 => Format::BF16,
        Ty::F32 => Format::F32,
        Ty::F64 => Format::F64,
        Ty::Tf32 => Format::TF32,
        Ty::E4m3 => Format::E4M3,
        Ty::E5m2 => Format::E5M2,
        _ => return None,
    })
}

/// The smallest and largest value of an integer type.
fn bounds(ty: Ty) -> (i128, i128) {
    let n = ty.bits();
    if ty.signed() || ty == Ty::S4 { (-(1 << (n - 1)), (1 << (n - 1)) - 1) } else { (0, (1 << n) - 1) }
}

/// An integer's value.
fn integer(bits: u64, ty: Ty) -> i128 {
    let spare = 128 - ty.bits();
    if ty.signed() { ((bits as u128) << spare) as i128 >> spare } else { ((bits as u128) << spare >> spare) as i128 }
}

/// Any conversion of one value, bits to bits.
fn general(bits: u64, from: Ty, to: Ty, how: How) -> u64 {
    let mask = if to.bits() >= 64 { !0 } else { (1u64 << to.bits()) - 1 };
    let Some(source) = format(from) else {
        let v = integer(bits, from);
        return match format(to) {
            None => {
                let (low, high) = bounds(to);
                (if how.sat { v.clamp(low, high) } else { v }) as u64 & mask
            }
            Some(_) => {
                let exact = Exact { negative: v < 0, magnitude: v.unsigned_abs(), exponent: 0, sticky: false };
                to_float(Value::Finite(exact), to, how)
            }
        };
    };
    let bits =
        if how.ftz && from == Ty::F32 { flush::<true>(f32::from_bits(bits as u32)).to_bits() as u64 } else { bits };
    let value = round::unpack(bits, source);
    if format(to).is_some() {
        let value = match value {
            Value::Finite(x) if how.integral => match round::to_integer(x, how.mode) {
                Some((negative, magnitude)) => Value::Finite(Exact { negative, magnitude, exponent: 0, sticky: false }),
                // So large that it is an integer already.
                None => value,
            },
            value => value,
        };
        return to_float(value, to, how);
    }
    let (low, high) = bounds(to);
    let v = match value {
        // NaN gives 0, but for f64 and 64-bit results, where it gives the top bit.
        Value::Nan if from == Ty::F64 || to.bits() == 64 => return 1 << (to.bits() - 1),
        Value::Nan => 0,
        Value::Infinity(negative) => {
            if negative {
                low
            } else {
                high
            }
        }
        Value::Finite(x) => match round::to_integer(x, how.mode) {
            Some((negative, magnitude)) if magnitude < 1 << 100 => {
                let v = magnitude as i128;
                (if negative { -v } else { v }).clamp(low, high)
            }
            _ => {
                if x.negative {
                    low
                } else {
                    high
                }
            }
        },
    };
    v as u64 & mask
}

/// Rounds to a float type with saturation, relu and flushing.
fn to_float(value: Value, to: Ty, how: How) -> u64 {
    let Some(to_format) = format(to) else { return 0 };
    let value = match value {
        Value::Finite(x) if x.negative && how.relu => {
            Value::Finite(Exact { negative: false, magnitude: 0, sticky: false, ..x })
        }
        Value::Infinity(true) if how.relu => {
            Value::Finite(Exact { negative: false, magnitude: 0, exponent: 0, sticky: false })
        }
        value => value,
    };
    if how.sat {
        // Clamped to [0, 1], NaN to 0.
        let one = Value::Finite(Exact { negative: false, magnitude: 1, exponent: 0, sticky: false });
        let clamped = match value {
            Value::Nan | Value::Infinity(true) => return 0,
            Value::Infinity(false) => one,
            Value::Finite(x) if x.negative || x.magnitude == 0 => return 0,
            Value::Finite(x) => {
                let length = 128 - x.magnitude.leading_zeros() as i32 + x.exponent;
                if length >= 1 { one } else { value }
            }
        };
        return round::pack(clamped, to_format, how.mode, false);
    }
    let bits = round::pack(value, to_format, how.mode, how.satfinite);
    match to {
        Ty::Tf32 if matches!(value, Value::Nan) => NAN32.to_bits() as u64,
        Ty::Tf32 => bits << 13,
        Ty::F32 if how.ftz => flush::<true>(f32::from_bits(bits as u32)).to_bits() as u64,
        _ => bits,
    }
}

fn convert(b: &mut Build<'_, '_>) -> Built {
    let how = how(b);
    let (to, from) = (b.ty(0)?, b.ty(1)?);
    if b.quals.types.len() != 2 {
        return b.unsupported();
    }
    if let Some(built) = super::convert_micro::convert(b, to, from) {
        return built;
    }
    match (to, from) {
        (Ty::F16x2 | Ty::Bf16x2, Ty::F32) => return pair(b, to, how),
        (Ty::E4m3x2 | Ty::E5m2x2, Ty::F32) => return pair8(b, to, how),
        (Ty::E4m3x2 | Ty::E5m2x2, Ty::F16x2) => return narrow8(b, to, how),
        (Ty::F16x2, Ty::E4m3x2 | Ty::E5m2x2) => return widen8(b, from, how),
        (Ty::Tf32, Ty::F32) => {}
        (Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2 | Ty::Tf32, _)
        | (_, Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2 | Ty::Tf32) => return b.unsupported(),
        _ => {}
    }
    check(b, to, from, how)?;
    b.operands(2)?;
    let (source, destination) = (b.operand(1)?, b.operand(0)?);
    let (a, found) = b.any_src(source, from.bits())?;
    let source_bits = found.map_or(from.bits(), Ty::bits);
    if source_bits < from.bits() {
        return b.error(format!("a register of {source_bits} bits is too narrow for {from}"));
    }
    // Constants and special registers of 32 bits are rows like all others.
    let wide_source = if found.is_none() { from.bits() == 64 } else { source_bits == 64 };
    let (d, found) = b.any_dst(destination, to.bits())?;
    if found.bits() < to.bits() {
        return b.error(format!("a register of {} bits is too narrow for {to}", found.bits()));
    }
    if let Some(built) = fast(b, d, a, to, from, how, found.bits(), wide_source) {
        return built;
    }
    // A wider register takes the result extended by its sign.
    let width = found.bits().max(to.bits());
    let f = move |bits: u64| {
        let v = general(bits, from, to, how);
        if to.signed() {
            let v = integer(v, to) as u64;
            if width >= 64 { v } else { v & ((1 << width) - 1) }
        } else {
            v
        }
    };
    match (wide_source, width == 64) {
        (false, false) => b.kernel(Map1 { d, a, f: move |x: u32| f(x as u64) as u32, types: PhantomData }),
        (false, true) => b.kernel(Map1 { d, a, f: move |x: u32| f(x as u64), types: PhantomData }),
        (true, false) => b.kernel(Map1 { d, a, f: move |x: u64| f(x) as u32, types: PhantomData }),
        (true, true) => b.kernel(Map1 { d, a, f, types: PhantomData }),
    }
}

/// The combinations of rounding and types that PTX has.
fn check(b: &Build<'_, '_>, to: Ty, from: Ty, how: How) -> Result<(), crate::error::Error> {
    let rounds = b.quals.pick(&["rn", "rz", "rm", "rp", "rna"]).is_some();
    let (float_to, float_from) = (format(to), format(from));
    let need = |yes: bool, what: &str| if yes { Ok(()) } else { b.error(format!("`{}` needs {what}", b.inst.name())) };
    let refuse = |no: bool| if no { b.unsupported() } else { Ok(()) };
    match (float_to, float_from) {
        (None, None) => refuse(rounds || how.integral || how.ftz || how.relu || how.satfinite),
        (None, Some(_)) => {
            refuse(rounds || how.relu || how.satfinite)?;
            need(how.integral, "an integer rounding such as .rzi")
        }
        (Some(_), None) => {
            refuse(how.integral || how.relu || how.satfinite)?;
            need(rounds, "a rounding such as .rn")
        }
        (Some(t), Some(f)) => {
            let narrows = t.precision < f.precision || t.exponent < f.exponent;
            refuse(how.integral && to != from)?;
            need(!narrows || rounds, "a rounding such as .rn")?;
            // bf16 to f16 narrows one way only; both want a rounding.
            refuse(rounds && !narrows && to == from)
        }
    }
}

/// The frequent conversions as vector code; None leaves it to the general path.
fn fast(b: &Build<'_, '_>, d: Slot, a: Slot, to: Ty, from: Ty, how: How, width: u32, wide: bool) -> Option<Built> {
    macro_rules! map {
        ($f:expr) => {
            Some(b.kernel(Map1 { d, a, f: $f, types: PhantomData }))
        };
    }
    let plain = How { mode: Mode::Rn, integral: false, ftz: false, sat: false, satfinite: false, relu: false };
    if how == (How { mode: Mode::Rz, integral: true, ..plain }) && !wide && width == 32 {
        match (to, from) {
            // Rust's `as` saturates and maps NaN to 0, as PTX does for these.
            (Ty::S32, Ty::F32) => return map!(|x: f32| x as i32),
            (Ty::U32, Ty::F32) => return map!(|x: f32| x as u32),
            _ => {}
        }
    }
    if how != plain {
        return None;
    }
    match (from, to, wide, width) {
        (Ty::F32, Ty::Bf16, false, 16 | 32) => map!(|x: f32| small::f32_to_bf16(x)),
        (Ty::F32, Ty::F16, false, 16 | 32) => map!(|x: f32| small::f32_to_f16(x)),
        (Ty::Bf16, Ty::F32, false, 32) => map!(|x: u16| result(small::bf16_to_f32(x))),
        (Ty::F16, Ty::F32, false, 32) => map!(|x: u16| result(small::f16_to_f32(x))),
        (Ty::S32, Ty::F32, false, 32) => map!(|x: i32| x as f32),
        (Ty::U32, Ty::F32, false, 32) => map!(|x: u32| x as f32),
        (Ty::F32, Ty::F64, false, 64) => map!(|x: f32| x as f64),
        (Ty::F64, Ty::F32, true, 32) => map!(|x: f64| result(x as f32)),
        (Ty::U32, Ty::U64 | Ty::S64, false, 64) => map!(|x: u32| x as u64),
        (Ty::S32, Ty::U64 | Ty::S64, false, 64) => map!(|x: i32| x as i64),
        (Ty::U64 | Ty::S64, Ty::U32 | Ty::S32, true, 32) => map!(|x: u64| x as u32),
        (Ty::U32 | Ty::S32, Ty::U16, false, 16 | 32) => map!(|x: u32| x as u16),
        (Ty::U16, Ty::U32 | Ty::S32, false, 32) => map!(|x: u16| x as u32),
        (Ty::S16, Ty::U32 | Ty::S32, false, 32) => map!(|x: i16| x as i32),
        (Ty::U16 | Ty::U32 | Ty::S32, Ty::U8, false, 16 | 32) => map!(|x: u8| x as u32),
        (Ty::U8, Ty::U16 | Ty::U32 | Ty::S32, false, 16 | 32) => map!(|x: u8| x as u32),
        (Ty::S8, Ty::U32 | Ty::S32, false, 32) => map!(|x: i8| x as i32),
        (Ty::S8, Ty::U16 | Ty::S16, false, 16) => map!(|x: i8| x as i16),
        _ => None,
    }
}

#[inline(always)]
fn result(x: f32) -> f32 {
    if x.is_nan() { NAN32 } else { x }
}

/// Two f32 to the halves of a register: the first source is the high one.
fn pair(b: &mut Build<'_, '_>, to: Ty, how: How) -> Built {
    b.operands(3)?;
    if how.integral
        || how.sat
        || how.ftz
        || !matches!(how.mode, Mode::Rn | Mode::Rz)
        || b.quals.pick(&["rn", "rz"]).is_none()
    {
        return b.unsupported();
    }
    let half = if to == Ty::F16x2 { Ty::F16 } else { Ty::Bf16 };
    let (x, y) = (b.src::<f32>(1)?, b.src::<f32>(2)?);
    let d = b.dst::<u32>(0)?;
    macro_rules! two {
        ($f:expr) => {{
            let f = $f;
            let g = move |high: f32, low: f32| (f(high) as u32) << 16 | f(low) as u32;
            b.kernel(Map2 { d, a: x, b: y, f: g, types: PhantomData::<fn(f32, f32) -> u32> })
        }};
    }
    match (half, how.mode, how.relu || how.satfinite) {
        (Ty::Bf16, Mode::Rn, false) => two!(small::f32_to_bf16),
        (Ty::F16, Mode::Rn, false) => two!(small::f32_to_f16),
        _ => two!(move |v: f32| general(v.to_bits() as u64, Ty::F32, half, how) as u16),
    }
}

/// Relu of a source: negative to 0.
#[inline(always)]
fn relu(x: f32, on: bool) -> f32 {
    if on && x < 0.0 { 0.0 } else { x }
}

fn only8(b: &Build<'_, '_>, how: How) -> Result<(), crate::error::Error> {
    if !b.quals.has("rn") || how.sat || how.ftz { b.unsupported() } else { Ok(()) }
}

/// Two f32 to two 8-bit floats: the first source is the high one.
fn pair8(b: &mut Build<'_, '_>, to: Ty, how: How) -> Built {
    only8(b, how)?;
    if !how.satfinite {
        return b.error("a conversion to 8-bit floats needs .satfinite");
    }
    let on = how.relu;
    if to == Ty::E4m3x2 {
        b.map2(move |x: f32, y: f32| {
            (small::f32_to_e4m3(relu(x, on)) as u16) << 8 | small::f32_to_e4m3(relu(y, on)) as u16
        })
    } else {
        b.map2(move |x: f32, y: f32| {
            (small::f32_to_e5m2(relu(x, on)) as u16) << 8 | small::f32_to_e5m2(relu(y, on)) as u16
        })
    }
}

fn narrow8(b: &mut Build<'_, '_>, to: Ty, how: How) -> Built {
    only8(b, how)?;
    if !how.satfinite {
        return b.error("a conversion to 8-bit floats needs .satfinite");
    }
    let on = how.relu;
    let f = move |x: u16| {
        let x = relu(small::f16_to_f32(x), on);
        if to == Ty::E4m3x2 { small::f32_to_e4m3(x) } else { small::f32_to_e5m2(x) }
    };
    b.map1(move |x: u32| (f((x >> 16) as u16) as u16) << 8 | f(x as u16) as u16)
}

fn widen8(b: &mut Build<'_, '_>, from: Ty, how: How) -> Built {
    only8(b, how)?;
    if how.satfinite {
        return b.unsupported();
    }
    let on = how.relu;
    let f = move |x: u8| {
        let v = if from == Ty::E4m3x2 { small::e4m3_to_f32(x) } else { small::e5m2_to_f32(x) };
        small::f32_to_f16(relu(v, on)) as u32
    };
    b.map1(move |x: u16| f((x >> 8) as u8) << 16 | f(x as u8))
}

/// Two s32 saturated and packed; a third source moves up to make room.
fn pack(b: &mut Build<'_, '_>) -> Built {
    let to = b.ty(0)?;
    let n = to.bits();
    if !b.quals.has("sat") || b.quals.ty(1) != Some(Ty::S32) {
        return b.unsupported();
    }
    let (low, high) = bounds(to);
    let mask = (1u32 << n) - 1;
    let clamp = move |x: i32| (x as i128).clamp(low, high) as u32 & mask;
    match (b.quals.ty(2), n) {
        (None, 16) => {
            b.operands(3)?;
            b.map2(move |x: i32, y: i32| clamp(x) << 16 | clamp(y))
        }
        (Some(Ty::B32), 4 | 8) => {
            b.operands(4)?;
            let (x, y, z) = (b.src::<i32>(1)?, b.src::<i32>(2)?, b.src::<u32>(3)?);
            let d = b.dst::<u32>(0)?;
            let f = move |x: i32, y: i32, z: u32| z << (2 * n) | clamp(x) << n | clamp(y);
            b.kernel(Map3 { d, a: x, b: y, c: z, f, types: PhantomData::<fn(i32, i32, u32) -> u32> })
        }
        _ => b.unsupported(),
    }
}
