//! `Grouped`: every format bit for bit, for few and many rows, at the ends of the matrix, and with the least code.

use crate::harness::{Function, Random, Scratch, TARGETS, compile, runs};
use half::f16;
use tegula_codegen::lower::cpu::micro::{
    Stride,
    grouped::{Grouped, GroupedOperands},
};
use tegula_ir::{
    Quant,
    layout::{self, GROUP, Layout},
};

/// The quantised formats.
fn formats() -> impl Iterator<Item = Quant> {
    Quant::ALL.iter().copied().filter(|q| !q.is_float())
}

/// Random GGUF blocks with every bit pattern in codes and integer scales, and finite f16 scales.
pub fn blocks(random: &mut Random, quant: Quant, k: usize, n: usize) -> Vec<u8> {
    let mut bytes = random.bytes(Layout::Gguf.bytes(quant, k, n).unwrap());
    let halves: &[usize] = match quant {
        Quant::Q6_K => &[208],
        q if q.has_min() => &[0, 2],
        _ => &[0],
    };
    for block in bytes.chunks_exact_mut(quant.block_bytes()) {
        for &at in halves {
            block[at..at + 2].copy_from_slice(&f16::from_f32(random.float()).to_le_bytes());
        }
    }
    bytes
}

/// A matrix of (kk, nn), packed; tiles of (k, n) of it times m rows.
struct Case {
    quant: Quant,
    m: usize,
    n: usize,
    k: usize,
    kk: usize,
    nn: usize,
}

impl Case {
    fn compile(&self, target: &str, run_strides: bool) -> (Function, usize) {
        let grouped = Grouped::new((self.m, self.n, self.k), self.quant).unwrap();
        let panel = layout::panel::format(self.quant).panel_bytes(self.kk).unwrap() as i64;
        let groups = (self.k / GROUP) as i64;
        let f = compile(target, |c, p| {
            let word = |i: i64| c.read(c.offset_c(p[6], i * 8), c.i64(), 0);
            let stride = |bytes: i64, at| if run_strides { Stride::Run(word(at)) } else { Stride::Fixed(bytes) };
            grouped.emit(
                c,
                &GroupedOperands {
                    codes: (p[0], stride(self.k as i64 + 7, 2)),
                    scales: (p[1], stride(4 * groups + 8, 3)),
                    sums: (p[2], Stride::Fixed(4 * groups)),
                    weights: p[3],
                    panel: if run_strides { Stride::Run(word(4)) } else { Stride::Fixed(panel) },
                    exists: run_strides.then(|| (word(0), word(1))),
                    c: (p[4], Stride::Fixed(4 * self.n as i64 + 12)),
                    scratch: p[5],
                },
            );
        });
        (f, grouped.scratch_bytes())
    }

    /// Runs the tile at (k0, n0) and compares every output.
    fn check(&self, target: &str, run_strides: bool, random: &mut Random, tiles: &[(usize, usize)], least: bool) {
        let (f, scratch) = self.compile(target, run_strides);
        if !runs(target) {
            return;
        }
        let Case { quant, m, n, k, kk, nn } = *self;
        let gguf = blocks(random, quant, kk, nn);
        let packed = layout::pack_reference(quant, &gguf, kk, nn).unwrap();
        let panel = layout::panel::format(quant).panel_bytes(kk).unwrap();
        let groups = k / GROUP;
        for &(k0, n0) in tiles {
            let (lda, lds, ldc) = (k + 7, groups + 2, n + 3);
            let floor = if least { -128 } else { -127 };
            let codes: Vec<i8> = random.bytes(m * lda).into_iter().map(|b| (b as i8).max(floor)).collect();
            let scales = random.floats(m * lds);
            let sums: Vec<i32> = (0..m * groups)
                .map(|i| codes[i / groups * lda + i % groups * GROUP..][..GROUP].iter().map(|&x| i32::from(x)).sum())
                .collect();
            let before = random.floats(m * ldc);
            let mut c = before.clone();
            let mut scratch = Scratch::new(scratch);
            let words = [kk - k0, (nn - n0).div_ceil(16), lda, 4 * lds, panel];
            let block = layout::panel::format(quant);
            let weights = &packed[n0 / 16 * panel + k0 / block.block * block.block_bytes..];
            unsafe {
                f.call(&[
                    codes.as_ptr().cast(),
                    scales.as_ptr().cast(),
                    sums.as_ptr().cast(),
                    weights.as_ptr(),
                    c.as_mut_ptr().cast(),
                    scratch.address(),
                    words.as_ptr().cast(),
                ]);
            }
            for (i, j) in (0..m).flat_map(|i| (0..ldc).map(move |j| (i, j))) {
                let mut want = before[i * ldc + j];
                if j < n && n0 + j < nn {
                    for g in (0..groups).filter(|g| k0 + g * GROUP < kk) {
                        let w = Layout::Gguf.group(quant, &gguf, kk, k0 / GROUP + g, n0 + j);
                        let x: [i8; GROUP] = codes[i * lda + g * GROUP..][..GROUP].try_into().unwrap();
                        let sx = scales[i * lds + g];
                        want = (w.dot(&x) as f32).mul_add(w.scale * sx, want);
                        if let Some(min) = w.min {
                            want = (sums[i * groups + g] as f32).mul_add(min * sx, want);
                        }
                    }
                }
                let got = c[i * ldc + j];
                assert_eq!(
                    got.to_bits(),
                    want.to_bits(),
                    "{target} {quant} {m}x{n}x{k} at ({k0}, {n0}), output ({i}, {j}): {got}, want {want}"
                );
            }
        }
    }
}

#[test]
fn every_format_and_row_count() {
    let mut random = Random::new(7);
    for target in TARGETS {
        for quant in formats() {
            let k = quant.block().max(64);
            for (m, n) in [(1, 96), (3, 48), (4, 32), (5, 32), (26, 16)] {
                let case = Case { quant, m, n, k, kk: k, nn: n };
                case.check(target, false, &mut random, &[(0, 0)], m % 2 == 0);
            }
        }
    }
}

#[test]
fn tiles_may_end_outside_the_matrix() {
    let mut random = Random::new(8);
    for target in TARGETS {
        for quant in formats() {
            for m in [1, 6] {
                let k = 2 * quant.block();
                let case = Case { quant, m, n: 96, k, kk: 3 * quant.block(), nn: 96 + 40 };
                case.check(target, true, &mut random, &[(0, 0), (k, 0), (0, 96), (k, 96)], true);
            }
        }
    }
}
