//! Packed layouts against the values that the reference `gguf` package gives (`fixtures/layout.py`), and against one
//! another on random bytes and awkward extents.

use proptest::prelude::*;
use tegula_ir::{
    Quant,
    layout::{GROUP, Layout, pack_reference, panel},
};

const FIXTURE: &[u8] = include_bytes!("fixtures/layout.bin");
const ROWS: usize = 3;
const K: usize = 256;

/// Per format: GGUF bytes of a (256, 3) matrix and its values, column after column.
fn fixture() -> Vec<(Quant, &'static [u8], Vec<f32>)> {
    let mut rest = FIXTURE;
    let formats = Quant::ALL.iter().map(|&quant| {
        let (bytes, after) = rest.split_at(Layout::Gguf.bytes(quant, K, ROWS).unwrap());
        let (values, after) = after.split_at(ROWS * K * 4);
        rest = after;
        (quant, bytes, values.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect())
    });
    let formats = formats.collect();
    assert!(rest.is_empty());
    formats
}

#[test]
fn values_are_those_of_the_reference() {
    for (quant, gguf, values) in fixture() {
        let packed = pack_reference(quant, gguf, K, ROWS).unwrap();
        assert_eq!(packed.len(), Layout::Panel16.bytes(quant, K, ROWS).unwrap());
        for (i, want) in values.iter().enumerate() {
            let (n, k) = (i / K, i % K);
            for (layout, bytes) in [(Layout::Gguf, gguf), (Layout::Panel16, &packed)] {
                let got = layout.decode(quant, bytes, (K, ROWS), k, n);
                assert_eq!(got.to_bits(), want.to_bits(), "{quant} {} ({k}, {n}): {got}, want {want}", layout.name());
            }
        }
    }
}

#[test]
fn outside_is_zero() {
    for (quant, gguf, _) in fixture() {
        for (k, n) in [(K, 0), (0, ROWS), (K, ROWS)] {
            assert_eq!(Layout::Gguf.decode(quant, gguf, (K, ROWS), k, n), 0.0);
        }
        // The 13 columns that fill the panel weigh nothing, so a lowering may compute them.
        let packed = pack_reference(quant, gguf, K, ROWS).unwrap();
        for (k, n) in (0..K).flat_map(|k| (ROWS..panel::COLUMNS).map(move |n| (k, n))) {
            let value = Layout::Panel16.decode(quant, &packed, (K, panel::COLUMNS), k, n);
            assert_eq!(value, 0.0, "{quant} ({k}, {n})");
        }
    }
}

#[test]
fn groups_give_the_integer_dot() {
    // Σ scale·(integer part) + min·Σx must be Σ value·x, in f64 up to the one rounding of each value.
    let x: [i8; GROUP] = std::array::from_fn(|i| ((i * 37 + 11) % 256) as u8 as i8);
    for (quant, gguf, values) in fixture().into_iter().filter(|f| !f.0.is_float()) {
        for n in 0..ROWS {
            for g in 0..K / GROUP {
                let group = Layout::Gguf.group(quant, gguf, K, g, n);
                assert_eq!(group.min.is_some(), quant.has_min());
                let sum = x.iter().map(|&x| f64::from(x)).sum::<f64>();
                let got = f64::from(group.scale) * f64::from(group.dot(&x)) + group.min.map_or(0.0, f64::from) * sum;
                let terms =
                    || values[n * K + g * GROUP..][..GROUP].iter().zip(&x).map(|(v, x)| f64::from(*v) * f64::from(*x));
                let (want, size) = (terms().sum::<f64>(), terms().map(f64::abs).sum::<f64>());
                assert!(
                    (got - want).abs() <= size * 2f64.powi(-23),
                    "{quant} column {n} group {g}: {got}, want {want}"
                );
            }
        }
    }
}

#[test]
fn sizes() {
    // Bytes per 16 columns of 256 k, panel16 and GGUF: equal, but for the unpacked 6-bit scales of Q4_K and Q5_K.
    let sizes = [
        (Quant::Q4_0, 2304, 2304),
        (Quant::Q4_1, 2560, 2560),
        (Quant::Q5_0, 2816, 2816),
        (Quant::Q5_1, 3072, 3072),
        (Quant::Q8_0, 4352, 4352),
        (Quant::Q4_K, 2368, 2304),
        (Quant::Q5_K, 2880, 2816),
        (Quant::Q6_K, 3360, 3360),
        (Quant::BF16, 8192, 8192),
    ];
    for (quant, panel, gguf) in sizes {
        assert_eq!(Layout::Panel16.bytes(quant, 256, 16), Some(panel), "{quant}");
        assert_eq!(Layout::Gguf.bytes(quant, 256, 16), Some(gguf), "{quant}");
        assert_eq!(Layout::Panel16.bytes(quant, 256, 17), Some(2 * panel), "{quant}");
    }
    assert_eq!(Layout::Panel16.bytes(Quant::Q4_K, 128, 16), None);
    assert_eq!(Layout::Gguf.bytes(Quant::F32, usize::MAX / 2, 3), None);
    assert_eq!(pack_reference(Quant::Q8_0, &[0; 33], 32, 1), None);
}

proptest! {
    #[test]
    fn packing_keeps_every_group(quant in prop::sample::select(Quant::ALL), blocks in 1usize..4, n in 1usize..40, seed: u64) {
        let k = blocks * quant.block();
        let mut state = seed | 1;
        let gguf: Vec<u8> = (0..Layout::Gguf.bytes(quant, k, n).unwrap())
            .map(|_| { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (state >> 56) as u8 })
            .collect();
        let packed = pack_reference(quant, &gguf, k, n).unwrap();
        for column in 0..n {
            for row in 0..k {
                let of = |layout: Layout, bytes| layout.decode(quant, bytes, (k, n), row, column).to_bits();
                prop_assert_eq!(of(Layout::Gguf, &gguf), of(Layout::Panel16, &packed));
            }
        }
    }
}
