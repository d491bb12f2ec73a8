//! Random contents: numbers of moderate size, and packed matrices whose scales are sane.

use super::super::{data, ints};
use super::next;
use crate::{Elem, Quant, Scalar, layout::Layout};

/// A source of random choices.
#[derive(Clone, Debug)]
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        (next(&mut self.0) >> 11) as usize % n.max(1)
    }
    /// With probability `n` in 100.
    pub fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
    /// A float of moderate size, now and then a multiple of a half (what lies between two integers rounds to the even one)
    /// or something special.
    fn float(&mut self) -> f64 {
        match self.below(40) {
            0 => 0.0,
            1 => -0.0,
            2 => f64::INFINITY,
            3 => f64::NAN,
            4 => 1e-6,
            5..9 => (self.below(33) as f64 - 16.0) / 2.0,
            _ => (self.below(4001) as f64 - 2000.0) / 250.0,
        }
    }
    /// An integer, mostly small.
    fn integer(&mut self) -> i64 {
        match self.below(10) {
            0 => next(&mut self.0) as i64,
            1 => self.pick(&[0, -1, 127, 128, 255, 32767, i64::from(i32::MIN), i64::MIN, i64::MAX]),
            _ => self.below(41) as i64 - 20,
        }
    }
    /// A constant of the type.
    pub fn scalar(&mut self, elem: Elem) -> Scalar {
        match elem {
            Elem::Bool => Scalar::bool(self.percent(50)),
            e if e.is_float() => Scalar::from_f64(e, self.float()),
            e => Scalar::from_i64(e, self.integer()),
        }
    }
    /// Patterns of `n` elements.
    pub fn elements(&mut self, elem: Elem, n: usize) -> Vec<u64> {
        match elem {
            // Bytes that are neither 0 nor 1 read as true.
            Elem::Bool => (0..n).map(|_| self.pick(&[0, 0, 0, 1, 1, 1, 2, 255])).collect(),
            e if e.is_float() => data(e, &(0..n).map(|_| self.float()).collect::<Vec<_>>()),
            e => ints(e, (0..n).map(|_| self.integer()).collect::<Vec<_>>()),
        }
    }
    /// A packed matrix of random codes.
    pub fn packed(&mut self, quant: Quant, layout: Layout, k: usize, n: usize) -> Vec<u8> {
        let mut bytes = vec![];
        for _ in 0..k / quant.block() * n {
            let mut block: Vec<u8> = (0..quant.block_bytes()).map(|_| self.below(256) as u8).collect();
            // Where the block's f16 scale and minimum lie.
            let scales: &[usize] = match quant {
                Quant::F32 | Quant::F16 | Quant::BF16 => &[],
                Quant::Q4_0 | Quant::Q5_0 | Quant::Q8_0 => &[0],
                Quant::Q4_1 | Quant::Q5_1 | Quant::Q4_K | Quant::Q5_K => &[0, 2],
                Quant::Q6_K => &[208],
            };
            for &at in scales {
                let v = Scalar::from_f64(Elem::F16, (self.below(201) as f64 - 100.0) / 1024.0);
                block[at..at + 2].copy_from_slice(&v.bits.to_le_bytes()[..2]);
            }
            if scales.is_empty() {
                let elem = [Elem::F32, Elem::F16, Elem::BF16][(quant as usize).min(2)];
                let v = Scalar::from_f64(elem, (self.below(201) as f64 - 100.0) / 32.0);
                block = v.bits.to_le_bytes()[..elem.bytes()].to_vec();
            }
            bytes.extend(block);
        }
        match layout {
            Layout::Gguf => bytes,
            Layout::Panel16 => crate::layout::pack_reference(quant, &bytes, k, n).unwrap_or_default(),
        }
    }
}
