//! f16, bf16, tf32, e4m3 and e5m2: conversions to f32 (exact) and from f32 (rounded to nearest even).
//!
//! Written without branches on the value, so that loops over lanes become vector code. Other roundings are in
//! [`super::round`].

/// The NaN that f32 instructions give.
pub const NAN32: f32 = f32::from_bits(0x7fff_ffff);

/// Exact.
#[inline(always)]
pub fn bf16_to_f32(x: u16) -> f32 {
    f32::from_bits((x as u32) << 16)
}

/// Nearest even; NaN gives 0x7fff.
#[inline(always)]
pub fn f32_to_bf16(x: f32) -> u16 {
    let b = x.to_bits();
    let rounded = (b.wrapping_add(0x7fff + (b >> 16 & 1))) >> 16;
    if x.is_nan() { 0x7fff } else { rounded as u16 }
}

/// Exact.
#[inline(always)]
pub fn f16_to_f32(x: u16) -> f32 {
    let (sign, body) = ((x as u32 & 0x8000) << 16, (x as u32 & 0x7fff) << 13);
    // Read as f32 the value is 2^-112 times too small, subnormals included; infinity and NaN need all exponent bits.
    let scaled = f32::from_bits(body) * f32::from_bits(0x7780_0000);
    let magnitude = if body >= 0x7c00 << 13 { body | 0x7f80_0000 } else { scaled.to_bits() };
    f32::from_bits(sign | magnitude)
}

/// Nearest even; too large gives infinity, NaN gives 0x7fff.
#[inline(always)]
pub fn f32_to_f16(x: f32) -> u16 {
    let b = x.to_bits();
    let (sign, a) = ((b >> 16 & 0x8000) as u16, b & 0x7fff_ffff);
    // Normal results: move the exponent's bias, round by carry.
    let normal = (a.wrapping_sub(112 << 23).wrapping_add(0xfff + (a >> 13 & 1))) >> 13;
    // Subnormal ones: adding 0.5 puts the last bit of f16 at the last bit of f32, where the addition rounds.
    let small = (f32::from_bits(a) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if a < 113 << 23 { small } else { normal };
    let finite = if finite > 0x7c00 { 0x7c00 } else { finite };
    let finite = if a >= 0x7f80_0000 { 0x7c00 } else { finite };
    if a > 0x7f80_0000 { 0x7fff } else { sign | finite as u16 }
}

/// e4m3 (finite: no infinity, NaN is 0x7f) to f32, exact.
#[inline(always)]
pub fn e4m3_to_f32(x: u8) -> f32 {
    let (sign, body) = ((x as u32 & 0x80) << 24, (x as u32 & 0x7f) << 20);
    let scaled = f32::from_bits(body) * f32::from_bits((127 + 120) << 23);
    let magnitude = if x & 0x7f == 0x7f { 0x7fff_ffff } else { scaled.to_bits() };
    f32::from_bits(sign | magnitude)
}

/// e5m2 to f32, exact.
#[inline(always)]
pub fn e5m2_to_f32(x: u8) -> f32 {
    f16_to_f32((x as u16) << 8)
}

/// Nearest even with saturation to the largest finite value (`.satfinite`); NaN gives NaN (0x7f).
#[inline(always)]
pub fn f32_to_e4m3(x: f32) -> u8 {
    let b = x.to_bits();
    let (sign, a) = ((b >> 24 & 0x80) as u8, b & 0x7fff_ffff);
    let normal = (a.wrapping_sub(120 << 23).wrapping_add(0x7_ffff + (a >> 20 & 1))) >> 20;
    // The last subnormal bit is 2^-9: adding 2^14 puts it at the last bit of f32.
    let magic = f32::from_bits((127 + 14) << 23);
    let small = (f32::from_bits(a) + magic).to_bits().wrapping_sub(magic.to_bits());
    let finite = if a < 121 << 23 { small } else { normal };
    let finite = if finite > 0x7e || a >= 0x7f80_0000 { 0x7e } else { finite };
    if a > 0x7f80_0000 { 0x7f } else { sign | finite as u8 }
}

/// Nearest even with saturation to the largest finite value (`.satfinite`); NaN gives NaN (0x7f).
#[inline(always)]
pub fn f32_to_e5m2(x: f32) -> u8 {
    let b = x.to_bits();
    let (sign, a) = ((b >> 24 & 0x80) as u8, b & 0x7fff_ffff);
    let normal = (a.wrapping_sub(112 << 23).wrapping_add(0xf_ffff + (a >> 21 & 1))) >> 21;
    // The last subnormal bit is 2^-16: adding 2^7 puts it at the last bit of f32.
    let magic = 128f32;
    let small = (f32::from_bits(a) + magic).to_bits().wrapping_sub(magic.to_bits());
    let finite = if a < 113 << 23 { small } else { normal };
    let finite = if finite > 0x7b || a >= 0x7f80_0000 { 0x7b } else { finite };
    if a > 0x7f80_0000 { 0x7f } else { sign | finite as u8 }
}

/// f32 rounded to the 10 mantissa bits of tf32, ties away from zero (`cvt.rna`).
#[inline(always)]
pub fn f32_to_tf32_rna(x: f32) -> f32 {
    let b = x.to_bits();
    if b & 0x7fff_ffff >= 0x7f80_0000 {
        return if x.is_nan() { NAN32 } else { x };
    }
    f32::from_bits(b.wrapping_add(0x1000) & !0x1fff)
}

/// f32 rounded to tf32, ties to even (`cvt.rn`).
#[inline(always)]
pub fn f32_to_tf32_rn(x: f32) -> f32 {
    let b = x.to_bits();
    if b & 0x7fff_ffff >= 0x7f80_0000 {
        return if x.is_nan() { NAN32 } else { x };
    }
    f32::from_bits(b.wrapping_add(0xfff + (b >> 13 & 1)) & !0x1fff)
}

/// What a tensor core reads of an f32 operand: its low 13 bits do not exist.
#[inline(always)]
pub fn tf32_truncate(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & !0x1fff)
}
