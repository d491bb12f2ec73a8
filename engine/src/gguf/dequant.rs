//! Reference dequantisation: each supported type's blocks to f32, in plain Rust, one function per type.
//!
//! This is the definition kernels are tested against, so it is written for reading, not for speed. All arithmetic is
//! in f32, in the order shown. Scales `d` and minima `m` are f16, little-endian.

use half::{bf16, f16};

use super::types::GgmlType;

/// All elements of `bytes` (whole blocks of type `ty`) as f32, in order.
///
/// `None` if the type is not supported or `bytes` is not a whole number of blocks.
pub fn dequantize(ty: GgmlType, bytes: &[u8]) -> Option<Vec<f32>> {
    let block: fn(&[u8], &mut Vec<f32>) = match ty {
        GgmlType::F32 => |b, out| out.push(f32::from_le_bytes([b[0], b[1], b[2], b[3]])),
        GgmlType::F16 => |b, out| out.push(half_at(b, 0)),
        GgmlType::BF16 => |b, out| out.push(bf16::from_le_bytes([b[0], b[1]]).to_f32()),
        GgmlType::Q4_0 => q4_0,
        GgmlType::Q4_1 => q4_1,
        GgmlType::Q5_0 => q5_0,
        GgmlType::Q5_1 => q5_1,
        GgmlType::Q8_0 => q8_0,
        GgmlType::Q4_K => q4_k,
        GgmlType::Q5_K => q5_k,
        GgmlType::Q6_K => q6_k,
        _ => return None,
    };
    let size = ty.block_bytes() as usize;
    if !bytes.len().is_multiple_of(size) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / size * ty.block_len() as usize);
    bytes.chunks_exact(size).for_each(|b| block(b, &mut out));
    Some(out)
}

fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

/// The 4-bit codes of 16 bytes: first all low nibbles, then all high ones.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|q| q & 15).chain(bytes.iter().map(|q| q >> 4))
}

/// Fifth bits: bit i of a little-endian u32 belongs to element i.
fn fifth_bits(b: &[u8], at: usize) -> impl Iterator<Item = u8> {
    let bits = u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
    (0..32).map(move |i| ((bits >> i) & 1) as u8)
}

/// d, 32 codes of 4 bits: `d (q - 8)`.
fn q4_0(b: &[u8], out: &mut Vec<f32>) {
    let d = half_at(b, 0);
    out.extend(nibbles(&b[2..18]).map(|q| d * (f32::from(q) - 8.0)));
}

/// d, m, 32 codes of 4 bits: `d q + m`.
fn q4_1(b: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    out.extend(nibbles(&b[4..20]).map(|q| d * f32::from(q) + m));
}

/// d, 32 fifth bits, 32 codes of 4 bits: `d (q - 16)`.
fn q5_0(b: &[u8], out: &mut Vec<f32>) {
    let d = half_at(b, 0);
    let codes = nibbles(&b[6..22]).zip(fifth_bits(b, 2));
    out.extend(codes.map(|(low, high)| d * (f32::from(low | high << 4) - 16.0)));
}

/// d, m, 32 fifth bits, 32 codes of 4 bits: `d q + m`.
fn q5_1(b: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    let codes = nibbles(&b[8..24]).zip(fifth_bits(b, 4));
    out.extend(codes.map(|(low, high)| d * f32::from(low | high << 4) + m));
}

/// d, 32 codes of 8 bits, signed: `d q`.
fn q8_0(b: &[u8], out: &mut Vec<f32>) {
    let d = half_at(b, 0);
    out.extend(b[2..34].iter().map(|&q| d * f32::from(q as i8)));
}

/// The 6-bit scale and minimum of sub-block `j` of 8, packed into 12 bytes: for j < 4 the low 6 bits of bytes j and
/// j + 4; for the rest 4 bits of byte j + 4 under the top 2 bits of bytes j - 4 and j.
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        ((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4, (packed[j + 4] >> 4) | (packed[j] >> 6) << 4)
    };
    (f32::from(scale), f32::from(min))
}

/// d, m, 8 scales and minima, 256 codes of 4 bits (each 32 bytes hold two sub-blocks of 32): `d s q - m min`.
fn q4_k(b: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    for j in 0..8 {
        let (scale, min) = scale_min(&b[4..16], j);
        let (ds, mm) = (d * scale, m * min);
        let codes = &b[16 + j / 2 * 32..][..32];
        out.extend(codes.iter().map(|byte| ds * f32::from((byte >> (j % 2 * 4)) & 15) - mm));
    }
}

/// As Q4_K with a fifth bit: bit j of fifth-bit byte i belongs to element i of sub-block j.
fn q5_k(b: &[u8], out: &mut Vec<f32>) {
    let (d, m) = (half_at(b, 0), half_at(b, 2));
    let fifth = &b[16..48];
    for j in 0..8 {
        let (scale, min) = scale_min(&b[4..16], j);
        let (ds, mm) = (d * scale, m * min);
        let codes = &b[48 + j / 2 * 32..][..32];
        for (byte, bits) in codes.iter().zip(fifth) {
            let q = ((byte >> (j % 2 * 4)) & 15) | ((bits >> j) & 1) << 4;
            out.push(ds * f32::from(q) - mm);
        }
    }
}

/// 256 low nibbles, 256 upper bit pairs, 16 signed 8-bit scales, d: `d s (q - 32)`.
///
/// The block is two halves of 128; in a half, element 32 g + i takes nibble g / 2 of byte 32 (g % 2) + i, bit pair g of
/// byte i, and scale 2 g + i / 16.
fn q6_k(b: &[u8], out: &mut Vec<f32>) {
    let d = half_at(b, 208);
    for half in 0..2 {
        let low = &b[half * 64..][..64];
        let high = &b[128 + half * 32..][..32];
        let scales = &b[192 + half * 8..][..8];
        for g in 0..4 {
            for i in 0..32 {
                let q = ((low[g % 2 * 32 + i] >> (g / 2 * 4)) & 15) | ((high[i] >> (g * 2)) & 3) << 4;
                let ds = d * f32::from(scales[g * 2 + i / 16] as i8);
                out.push(ds * (f32::from(q) - 32.0));
            }
        }
    }
}
