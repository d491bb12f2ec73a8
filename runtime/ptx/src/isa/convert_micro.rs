//! `cvt` with the formats of microscaling: 4- and 6-bit floats (e2m1, e2m3, e3m2) and scales (ue8m0), two in a register.
//!
//! A pair of e2m1 lies in the halves of 8 bits; the others take 8 bits each, of which a 6-bit one uses the low six. The
//! small floats have neither infinity nor NaN: NaN becomes the largest number. A scale is a power of two, 2^(bits - 127),
//! without sign; 0xff is NaN.

use crate::{
    decode::{build::Build, form::Built},
    num::{
        round::{self, Format, Mode},
        small,
    },
    types::Ty,
};

/// A small float: bits of exponent and fraction.
#[derive(Clone, Copy)]
struct Small {
    exponent: u32,
    fraction: u32,
    /// Bits from one of a pair to the next.
    step: u32,
}

fn small_float(ty: Ty) -> Option<Small> {
    Some(match ty {
        Ty::E2m1x2 => Small { exponent: 2, fraction: 1, step: 4 },
        Ty::E2m3x2 => Small { exponent: 2, fraction: 3, step: 8 },
        Ty::E3m2x2 => Small { exponent: 3, fraction: 2, step: 8 },
        _ => return None,
    })
}

impl Small {
    /// Exact.
    fn to_f32(self, bits: u32) -> f32 {
        let bias = (1 << (self.exponent - 1)) - 1;
        let magnitude = bits & ((1 << (self.exponent + self.fraction)) - 1);
        let (e, f) = (magnitude >> self.fraction, magnitude & ((1 << self.fraction) - 1));
        let one = 1 << self.fraction;
        let (significand, e) = if e == 0 { (f, 1) } else { (f | one, e) };
        let value = significand as f32 / one as f32 * 2f32.powi(e as i32 - bias);
        if bits >> (self.exponent + self.fraction) & 1 == 1 { -value } else { value }
    }

    /// To nearest even, at most the largest number.
    fn of_f32(self, x: f32) -> u32 {
        let sign = 1 << (self.exponent + self.fraction);
        if x.is_nan() {
            return sign - 1;
        }
        // `nan` is what follows the largest number: the sign alone.
        let format =
            Format { precision: self.fraction + 1, exponent: self.exponent, finite: true, nan: u64::from(sign) };
        round::pack(round::unpack(x.to_bits() as u64, Format::F32), format, Mode::Rn, true) as u32
    }
}

/// The scale of an f32: its magnitude rounded to a power of two, up or towards zero.
fn scale(x: f32, up: bool, finite: bool) -> u32 {
    let (exponent, fraction) = (x.to_bits() >> 23 & 0xff, x.to_bits() & 0x7f_ffff);
    if x.is_nan() {
        return 0xff;
    }
    let scale = match exponent {
        // 2^-127 is a subnormal f32: half of the least normal one.
        0 => (up && fraction > 0x40_0000) as u32,
        _ => exponent + (up && fraction != 0) as u32,
    };
    if finite { scale.min(0xfe) } else { scale.min(0xff) }
}

fn scale_to_bf16(bits: u32) -> u32 {
    match bits {
        0xff => 0x7fff,
        // 2^-127 as a subnormal.
        0 => 0x40,
        e => e << 7,
    }
}

/// Builds the conversion; None when neither type is one of these.
pub fn convert(b: &mut Build<'_, '_>, to: Ty, from: Ty) -> Option<Built> {
    let micro = |ty| small_float(ty).is_some() || ty == Ty::Ue8m0x2;
    (micro(to) || micro(from)).then(|| build(b, to, from))
}

fn build(b: &mut Build<'_, '_>, to: Ty, from: Ty) -> Built {
    let (satfinite, on) = (b.quals.has("satfinite"), b.quals.has("relu"));
    if b.quals.pick(&["ftz", "sat", "rm", "rna", "rni", "rzi", "rmi", "rpi"]).is_some() {
        return b.unsupported();
    }
    let nearest = b.quals.has("rn");
    let relu = move |x: f32| if on && x < 0.0 { 0.0 } else { x };
    match (to, from) {
        (Ty::Ue8m0x2, Ty::F32 | Ty::Bf16x2) if !nearest && !on => {
            let up = match b.quals.pick(&["rz", "rp"]) {
                Some(mode) => mode == "rp",
                None => return b.error(format!("`{}` needs .rz or .rp", b.inst.name())),
            };
            let f = move |x: f32| scale(x, up, satfinite);
            if from == Ty::F32 {
                return b.map2(move |x: f32, y: f32| (f(x) << 8 | f(y)) as u16);
            }
            b.map1(move |x: u32| {
                (f(small::bf16_to_f32((x >> 16) as u16)) << 8 | f(small::bf16_to_f32(x as u16))) as u16
            })
        }
        (Ty::Bf16x2, Ty::Ue8m0x2) if nearest && !satfinite && !on => {
            b.map1(|x: u16| scale_to_bf16(x as u32 >> 8) << 16 | scale_to_bf16(x as u32 & 0xff))
        }
        (_, Ty::F32) if nearest => {
            let Some(format) = small_float(to) else { return b.unsupported() };
            if !satfinite {
                return b.error("a conversion to 4- or 6-bit floats needs .satfinite");
            }
            let f = move |x: f32| format.of_f32(relu(x));
            if format.step == 4 {
                return b.map2(move |x: f32, y: f32| (f(x) << 4 | f(y)) as u8);
            }
            b.map2(move |x: f32, y: f32| (f(x) << 8 | f(y)) as u16)
        }
        (Ty::F16x2, _) if nearest && !satfinite => {
            let Some(format) = small_float(from) else { return b.unsupported() };
            let f = move |x: u32| small::f32_to_f16(relu(format.to_f32(x))) as u32;
            if format.step == 4 {
                return b.map1(move |x: u8| f(x as u32 >> 4) << 16 | f(x as u32 & 15));
            }
            b.map1(move |x: u16| f(x as u32 >> 8) << 16 | f(x as u32 & 0xff))
        }
        _ => b.unsupported(),
    }
}
