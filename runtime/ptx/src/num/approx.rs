//! The approximate instructions: ex2, lg2, sin, cos, tanh, rsqrt.
//!
//! PTX bounds their error but leaves the bits to the device. The model here evaluates a polynomial in f64 and rounds once
//! to f32, which is within one unit in the last place of the true value (half, almost always) and so inside of every
//! bound. It has no branches on values and no fma, so that it is vector code and gives the same bits everywhere.

use super::small::NAN32;
use std::f64::consts::{LN_2, LOG2_E};

/// 1.5 * 2^52: adding and subtracting it rounds an f64 to an integer, whose low bits then stand in the sum.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// 2^x for |x| < 1000.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    // Taylor coefficients ln(2)^k / k!; at |t| <= 1/2 the first one left out is 7e-12.
    const C: [f64; 10] = {
        let mut c = [1.0; 10];
        let mut k = 1;
        while k < 10 {
            c[k] = c[k - 1] * LN_2 / k as f64;
            k += 1;
        }
        c
    };
    let shifted = x + ROUND;
    let t = x - (shifted - ROUND);
    let mut p = C[9];
    let mut k = 9;
    while k > 0 {
        k -= 1;
        p = p * t + C[k];
    }
    let n = shifted.to_bits() as u32 as i32 as i64;
    p * f64::from_bits(((n + 1023) as u64) << 52)
}

/// 2^x.
#[inline(always)]
pub fn ex2(x: f32) -> f32 {
    let clamped = if x > 200.0 { 200.0 } else { x };
    let clamped = if clamped > -200.0 { clamped } else { -200.0 };
    let y = exp2(clamped as f64) as f32;
    if x.is_nan() { NAN32 } else { y }
}

/// Base-2 logarithm.
#[inline(always)]
pub fn lg2(x: f32) -> f32 {
    const SQRT_HALF_BITS: u64 = 0x3fe6_a09e_667f_3bcd;
    // Exponent and a mantissa in [sqrt(1/2), sqrt(2)).
    let bits = (x as f64).to_bits().wrapping_sub(SQRT_HALF_BITS);
    let e = bits as i64 >> 52;
    let m = f64::from_bits((bits & 0xf_ffff_ffff_ffff) + SQRT_HALF_BITS);
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let mut p = 1.0 / 17.0;
    let mut k = 15;
    while k >= 1 {
        p = p * q + 1.0 / k as f64;
        k -= 2;
    }
    let y = (e as i32 as f64 + 2.0 * LOG2_E * s * p) as f32;
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    let y = if x == f32::INFINITY { x } else { y };
    if x.is_nan() || x < 0.0 { NAN32 } else { y }
}

/// Sine of `x + quarter * pi/2`.
#[inline(always)]
fn sine(x: f32, quarter: i32) -> f32 {
    const HALF_PI_HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
    const HALF_PI_LOW: f64 = f64::from_bits(0x3dd0_b461_1a62_6331);
    let x64 = x as f64;
    let shifted = x64 * std::f64::consts::FRAC_2_PI + ROUND;
    let k = shifted - ROUND;
    let r = x64 - k * HALF_PI_HIGH - k * HALF_PI_LOW;
    let q = r * r;
    let sin =
        r + r * q * (-1.0 / 6.0 + q * (1.0 / 120.0 + q * (-1.0 / 5040.0 + q * (1.0 / 362_880.0 - q / 39_916_800.0))));
    let cos = 1.0
        + q * (-0.5
            + q * (1.0 / 24.0
                + q * (-1.0 / 720.0 + q * (1.0 / 40320.0 + q * (-1.0 / 3_628_800.0 + q / 479_001_600.0)))));
    let n = (shifted.to_bits() as u32 as i32).wrapping_add(quarter);
    let y = if n & 1 == 0 { sin } else { cos };
    let y = if n & 2 == 0 { y } else { -y };
    if x.abs() < f32::INFINITY { y as f32 } else { NAN32 }
}

/// Sine. Beyond 2^30 or so the reduction loses accuracy, as the device's does far earlier.
#[inline(always)]
pub fn sin(x: f32) -> f32 {
    // The sine of a signed zero is that zero.
    let y = sine(x, 0);
    if x == 0.0 { x } else { y }
}

/// Cosine.
#[inline(always)]
pub fn cos(x: f32) -> f32 {
    sine(x, 1)
}

/// Hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let x64 = x as f64;
    let clamped = if x64 > 20.0 { 20.0 } else { x64 };
    let clamped = if clamped > -20.0 { clamped } else { -20.0 };
    let large = 1.0 - 2.0 / (exp2(clamped * (2.0 * LOG2_E)) + 1.0);
    let q = x64 * x64;
    let small = x64 * (1.0 - q * (1.0 / 3.0 - q * (2.0 / 15.0)));
    let y = if x.abs() < 0.01 { small } else { large } as f32;
    if x.is_nan() { NAN32 } else { y }
}

/// Reciprocal square root.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    let y = (1.0 / (x as f64).sqrt()) as f32;
    if y.is_nan() { NAN32 } else { y }
}
