//! Packing moves bits: all bytes equal those of the element-by-element reference.

use crate::support::*;
use tegula::ir::{
    Quant,
    layout::{Layout, pack_reference},
};
use tegula_kernels::pack::{pack, pack_as};

/// Random bytes: a packing kernel must not care what they mean.
fn packs(quant: Quant, k: usize, n: usize, rng: &mut Rng) {
    let len = Layout::Gguf.bytes(quant, k, n).unwrap();
    let gguf: Vec<u8> = (0..len).map(|_| rng.bits() as u8).collect();
    let want = pack_reference(quant, &gguf, k, n).unwrap();
    let plain = pack(&SM80, quant, &gguf, k, n).unwrap();
    assert_eq!((plain.layout(), plain.as_bytes()), (Layout::Gguf, &gguf[..]), "GPUs take weights as they are");
    assert_eq!(pack(&CPU, quant, &gguf, k, n).unwrap().as_bytes(), want);
    for stream in devices() {
        let got = pack_as(Layout::Panel16, stream, quant, &gguf, k, n).unwrap();
        assert_eq!((got.k(), got.n(), got.quant(), got.layout()), (k, n, quant, Layout::Panel16));
        same_bits(&format!("{quant}, K = {k}, N = {n}, {}", stream.device().name()), got.as_bytes(), &want);
    }
}

#[test]
fn every_format_and_edge_as_the_reference() {
    let mut rng = Rng(1);
    for &quant in Quant::ALL {
        for n in [1, 15, 16, 17, 50] {
            packs(quant, odd_k(quant, 160), n, &mut rng);
            packs(quant, odd_k(quant, 800), n, &mut rng);
        }
    }
}

#[test]
fn float_rows_of_any_length() {
    let mut rng = Rng(2);
    for quant in [Quant::F32, Quant::F16, Quant::BF16] {
        for k in [1, 3, 63, 64, 65, 130] {
            packs(quant, k, 17, &mut rng);
        }
    }
}

#[test]
fn a_wrong_size_is_an_error() {
    for (k, n, len) in [(64, 2, 71), (64, 2, 73), (64, 2, 74), (64, 2, 144), (48, 2, 72), (64, 0, 72), (0, 2, 4)] {
        let got = pack(&CPU, Quant::Q4_0, &vec![1; len], k, n);
        let message = got.err().unwrap_or_else(|| panic!("K = {k}, N = {n}, {len} bytes were packed")).to_string();
        assert!(message.contains("q4_0") || message.contains("Q4_0"), "{message}");
    }
}
