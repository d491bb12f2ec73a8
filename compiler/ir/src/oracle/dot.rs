//! Matrix products and packed operands.

use super::{
    args::PackedArg,
    error::{Fault, Trap},
    number,
    value::Tile,
};
use crate::{attr::Precision, elem::Elem, layout, types::TileType};

/// A rectangle of a packed matrix.
pub(super) struct Rectangle<'a> {
    pub matrix: &'a PackedArg<'a>,
    pub k0: i64,
    pub n0: i64,
    pub k: usize,
    pub n: usize,
}

/// (M, K)·(K, N) + (M, N): one chain per output in ascending k.
pub(super) fn dot(a: &Tile, b: &Tile, acc: &Tile, precision: Precision) -> Tile {
    let dims = (a.shape[0], a.shape[1], b.shape[1]);
    match acc.elem {
        Elem::I32 => {
            let wide = |t: &Tile| (0..t.bits.len()).map(|i| t.int(i) as i32).collect::<Vec<i32>>();
            // A sum that leaves i32 wraps, like every integer sum.
            let c = product(dims, &wide(a), &wide(b), wide(acc), |x, y, c| x.wrapping_mul(y).wrapping_add(c));
            Tile { bits: c.iter().map(|&v| number::wrap(Elem::I32, v.into())).collect(), ..acc.clone() }
        }
        Elem::F64 => {
            let wide = |t: &Tile| t.bits.iter().map(|&b| f64::from_bits(b)).collect::<Vec<f64>>();
            let c = product(dims, &wide(a), &wide(b), wide(acc), f64::mul_add);
            Tile { bits: c.iter().map(|&v| if v.is_nan() { f64::NAN } else { v }.to_bits()).collect(), ..acc.clone() }
        }
        _ => {
            // f16, bf16 and the 8-bit types are exact in f32.
            let (x, y, c) = (a.to_f32(), b.to_f32(), acc.to_f32());
            let low = |v: &[f32]| v.iter().map(|&x| tf32(x - tf32(x))).collect::<Vec<f32>>();
            let high = |v: &[f32]| v.iter().map(|&x| tf32(x)).collect::<Vec<f32>>();
            let c = match precision {
                Precision::Ieee => product_f32(dims, &x, &y, c),
                Precision::Tf32 => product_f32(dims, &high(&x), &high(&y), c),
                // Three products of the upper and lower parts, the small ones first.
                Precision::Tf32x3 => {
                    let c = product_f32(dims, &low(&x), &high(&y), c);
                    let c = product_f32(dims, &high(&x), &low(&y), c);
                    product_f32(dims, &high(&x), &high(&y), c)
                }
            };
            let c: Vec<f32> = c.iter().map(|&v| if v.is_nan() { f32::NAN } else { v }).collect();
            Tile::from_f32(acc.shape.clone(), &c)
        }
    }
}

/// [`product`] by fma. Where the CPU has that instruction, the compiler may use it: the same bits, many times faster.
fn product_f32(dims: (usize, usize, usize), a: &[f32], b: &[f32], c: Vec<f32>) -> Vec<f32> {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn fast(dims: (usize, usize, usize), a: &[f32], b: &[f32], c: Vec<f32>) -> Vec<f32> {
            product(dims, a, b, c, |x, y, c| x.mul_add(y, c))
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the features.
            return unsafe { fast(dims, a, b, c) };
        }
    }
    product(dims, a, b, c, f32::mul_add)
}

/// `c[i, j] = f(a[i, k], b[k, j], c[i, j])` for ascending k.
#[inline(always)]
fn product<T: Copy>(
    (m, depth, n): (usize, usize, usize),
    a: &[T],
    b: &[T],
    mut c: Vec<T>,
    f: impl Fn(T, T, T) -> T,
) -> Vec<T> {
    for i in 0..m {
        let row = &mut c[i * n..(i + 1) * n];
        for k in 0..depth {
            let x = a[i * depth + k];
            row.iter_mut().zip(&b[k * n..(k + 1) * n]).for_each(|(c, &y)| *c = f(x, y, *c));
        }
    }
    c
}

/// Rounded to 10 bits of mantissa, to nearest, ties away from zero; infinities and NaNs stay.
fn tf32(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) } else { x }
}

impl Rectangle<'_> {
    /// Position in the matrix of element (k, n) of the rectangle, if it lies inside the matrix.
    fn at(&self, k: usize, n: usize) -> Option<(usize, usize)> {
        inside(self.matrix, self.k0.checked_add(k as i64)?, self.n0.checked_add(n as i64)?)
    }
}

fn inside(m: &PackedArg<'_>, k: i64, n: i64) -> Option<(usize, usize)> {
    let (k, n) = (usize::try_from(k).ok()?, usize::try_from(n).ok()?);
    (k < m.k && n < m.n).then_some((k, n))
}

fn element(m: &PackedArg<'_>, at: Option<(usize, usize)>) -> f32 {
    at.map_or(0.0, |(k, n)| m.layout.decode(m.quant, m.bytes, (m.k, m.n), k, n))
}

/// Operands: codes (M, K), scales (M, K/32), code sums (M, K/32), accumulator (M, N). Groups in ascending k; the integer
/// product of a group is exact; a group outside the matrix adds nothing.
pub(super) fn dot_grouped([codes, scales, sums, acc]: [&Tile; 4], w: &Rectangle<'_>) -> Tile {
    let (m, groups) = (codes.shape[0], w.k / layout::GROUP);
    let (scales, mut out) = (scales.to_f32(), acc.to_f32());
    for group in 0..groups {
        for n in 0..w.n {
            let Some((k, column)) = w.at(group * layout::GROUP, n) else { continue };
            let weights = w.matrix.layout.group(w.matrix.quant, w.matrix.bytes, w.matrix.k, k / layout::GROUP, column);
            for row in 0..m {
                let first = row * w.k + group * layout::GROUP;
                let x = std::array::from_fn(|i| codes.int(first + i) as i8);
                let (sx, c) = (scales[row * groups + group], &mut out[row * w.n + n]);
                *c = (weights.dot(&x) as f32).mul_add(weights.scale * sx, *c);
                if let Some(min) = weights.min {
                    let sum = sums.int(row * groups + group) as i32 as f32;
                    *c = sum.mul_add(min * sx, *c);
                }
            }
        }
    }
    Tile::from_f32(acc.shape.clone(), &out)
}

pub(super) fn dequant(w: &Rectangle<'_>, result: &TileType) -> Tile {
    let at = |i: usize| element(w.matrix, w.at(i / w.n, i % w.n)).to_bits() as u64;
    Tile::new(result, (0..w.k * w.n).map(at).collect())
}

/// Dequantised elements at index tiles.
pub(super) fn gather(
    m: &PackedArg<'_>,
    k: &Tile,
    n: &Tile,
    mask: Option<&Tile>,
    checked: bool,
    result: &TileType,
) -> Result<Tile, Trap> {
    let mut t = Tile::splat(result, 0);
    for i in 0..t.bits.len() {
        if mask.is_some_and(|m| m.bits[i] == 0) {
            continue;
        }
        let (k, n) = (k.bits[i] as i64, n.bits[i] as i64);
        let at = inside(m, k, n);
        if checked && at.is_none() {
            return Err(Fault::OutOfRange { name: "the packed matrix".into(), extents: vec![m.k as i64, m.n as i64] }
                .at(vec![k, n]));
        }
        t.bits[i] = element(m, at).to_bits() as u64;
    }
    Ok(t)
}
