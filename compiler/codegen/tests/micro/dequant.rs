//! Packed weights as f32, tile by tile and element by element, for every format, inside the matrix and beyond its ends.

use crate::{
    grouped::blocks,
    harness::{Random, TARGETS, compile, runs},
};
use tegula_codegen::lower::cpu::micro::{
    Stride,
    dequant::{Dequant, DequantOperands},
};
use tegula_codegen::lower::cpu::packed::element::Place;
use tegula_ir::{
    Quant,
    layout::{self, Layout},
};

/// Random bytes of a matrix: any bits are a float, but NaNs would not compare.
fn weights(random: &mut Random, quant: Quant, k: usize, n: usize) -> Vec<u8> {
    if !quant.is_float() {
        return blocks(random, quant, k, n);
    }
    let floats = random.floats(k * n).into_iter();
    match quant {
        Quant::F16 => floats.flat_map(|x| half::f16::from_f32(x).to_le_bytes()).collect(),
        Quant::BF16 => floats.flat_map(|x| half::bf16::from_f32(x).to_le_bytes()).collect(),
        _ => floats.flat_map(f32::to_le_bytes).collect(),
    }
}

#[test]
fn tiles() {
    let mut random = Random::new(9);
    for target in TARGETS.into_iter().filter(|t| !t.contains("vnni")) {
        for &quant in Quant::ALL {
            let (k, n) = (quant.block().max(20), 48);
            let (kk, nn) = if quant.is_float() { (k + 7, 72) } else { (k + quant.block(), 72) };
            let tile = Dequant::new((k, n), quant).or_else(|| Dequant::new((64, n), quant)).unwrap();
            let k = if k.is_multiple_of(quant.block()) { k } else { 64 };
            let kk = kk.next_multiple_of(quant.block());
            let panel = layout::panel::format(quant).panel_bytes(kk).unwrap();
            let f = compile(target, |c, p| {
                let word = |i: i64| c.read(c.offset_c(p[2], i * 8), c.i64(), 0);
                tile.emit(
                    c,
                    &DequantOperands {
                        weights: p[0],
                        panel: Stride::Fixed(panel as i64),
                        exists: (word(0), word(1)),
                        to: (p[1], Stride::Fixed((n + 1) as i64 * 4)),
                    },
                );
            });
            if !runs(target) {
                continue;
            }
            let gguf = weights(&mut random, quant, kk, nn);
            let packed = layout::pack_reference(quant, &gguf, kk, nn).unwrap();
            let format = layout::panel::format(quant);
            for (k0, n0) in [(0, 0), (k, 0), (0, n), (k, n)] {
                let from = &packed[n0 / 16 * panel + k0 / format.block * format.block_bytes..];
                let words = [kk - k0, (nn - n0).div_ceil(16)];
                let mut out = vec![f32::NAN; k * (n + 1)];
                unsafe { f.call(&[from.as_ptr(), out.as_mut_ptr().cast(), words.as_ptr().cast()]) };
                for (i, j) in (0..k).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let (got, want) =
                        (out[i * (n + 1) + j], Layout::Gguf.decode(quant, &gguf, (kk, nn), k0 + i, n0 + j));
                    // The columns that fill the last panel may be −0.
                    let same = got.to_bits() == want.to_bits() || (n0 + j >= nn && got == 0.0);
                    assert!(same, "{target} {quant} tile ({k0}, {n0}) at ({i}, {j}): {got}, want {want}");
                }
                assert!((0..k).all(|i| out[i * (n + 1) + n].is_nan()), "{quant}: wrote past a row");
            }
        }
    }
}

#[test]
fn elements() {
    let mut random = Random::new(10);
    for &quant in Quant::ALL {
        let (kk, nn) = (2 * quant.block().max(16), 40);
        let f = compile(TARGETS[0], |c, p| {
            let word = |i: i64| c.read(c.offset_c(p[2], i * 8), c.i64(), 0);
            let place = Place { quant, layout: Layout::Panel16, base: p[0], rows: word(0) };
            c.write(place.value(c, word(1), word(2)), p[1]);
        });
        if !runs(TARGETS[0]) {
            return;
        }
        let gguf = weights(&mut random, quant, kk, nn);
        let packed = layout::pack_reference(quant, &gguf, kk, nn).unwrap();
        for (k, n) in (0..kk).flat_map(|k| (0..nn).map(move |n| (k, n))) {
            let (words, mut got) = ([kk, k, n], f32::NAN);
            unsafe { f.call(&[packed.as_ptr(), (&raw mut got).cast(), words.as_ptr().cast()]) };
            let want = Layout::Gguf.decode(quant, &gguf, (kk, nn), k, n);
            assert_eq!(got.to_bits(), want.to_bits(), "{quant} at ({k}, {n}): {got}, want {want}");
        }
    }
}
