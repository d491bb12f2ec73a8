//! Devices, random data, comparison.

use half::{bf16, f16};
use std::{cell::RefCell, sync::LazyLock};
use tegula::{
    device::{Completion, EmulatedOptions, OracleOptions},
    ir::{Quant, layout::Layout},
    prelude::*,
};

/// The CPU.
pub static CPU: LazyLock<Stream> = LazyLock::new(|| Device::cpu().stream());
/// The oracle: also reports races between programs, and reads of what nothing has written.
pub static ORACLE: LazyLock<Stream> =
    LazyLock::new(|| Device::oracle_with(OracleOptions { sanitize: true, ..OracleOptions::default() }).stream());

/// An emulated A100, whose asynchronous results arrive early.
pub static SM80: LazyLock<Stream> = LazyLock::new(|| emulated("sm_80", Completion::Early));
/// An emulated H100, whose asynchronous results arrive late.
pub static SM90A: LazyLock<Stream> = LazyLock::new(|| emulated("sm_90a", Completion::Late));

fn emulated(arch: &str, completion: Completion) -> Stream {
    let options = EmulatedOptions { completion, ..EmulatedOptions::default() };
    Device::emulated_with(arch, options).expect("an architecture that is emulated").stream()
}

/// All devices.
pub fn devices() -> [&'static Stream; 4] {
    [&CPU, &ORACLE, &SM80, &SM90A]
}

/// Random numbers: splitmix64.
pub struct Rng(pub u64);

impl Rng {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// 0 .. n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }
    /// −1 to 1, never 0.
    pub fn float(&mut self) -> f32 {
        let x = ((self.bits() >> 41) as f32 + 0.5) / (1 << 22) as f32 - 1.0;
        if x == 0.0 { 0.5 } else { x }
    }
    /// `n` of those, times `size`.
    pub fn floats(&mut self, n: usize, size: f32) -> Vec<f32> {
        (0..n).map(|_| self.float() * size).collect()
    }
    /// A permutation of 0 .. n.
    pub fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut v: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            v.swap(i, self.below(i + 1));
        }
        v
    }
}

thread_local! {
    /// Where tensors that this thread makes lie, if not in the host's memory.
    static PLACE: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// Tensors that this thread makes from now on lie where the device's kernels reach them.
#[allow(dead_code, reason = "for devices with memory of their own: tests/gpu")]
pub fn place_on(device: &Device) {
    PLACE.set(Some(device.clone()));
}

fn place() -> Option<Device> {
    PLACE.with_borrow(Option::clone)
}

/// A tensor of these values.
pub fn tensor<T: Elem, const R: usize>(shape: [usize; R], values: &[T]) -> Tensor<T> {
    match place() {
        Some(device) => device.tensor(shape, values).unwrap(),
        None => Tensor::from_slice(shape, values).unwrap(),
    }
}

/// An output: full of what is easily seen, see [`Tensor::poisoned`].
pub fn poisoned<T: Elem, const R: usize>(shape: [usize; R]) -> Tensor<T> {
    let host = Tensor::poisoned(shape).unwrap();
    match place() {
        Some(device) => device.tensor(shape, host.as_slice()).unwrap(),
        None => host,
    }
}

/// A GGUF tensor of `n` rows of `k` weights: random codes and scales, weights of the size of 1.
pub fn gguf(quant: Quant, k: usize, n: usize, rng: &mut Rng) -> Vec<u8> {
    let blocks = n * k / quant.block();
    // Bytes of f16 scales in a block, and how large a scale may be for weights of about 1.
    let (scales, size): (&[usize], f32) = match quant {
        Quant::F32 => return (0..blocks).flat_map(|_| rng.float().to_le_bytes()).collect(),
        Quant::F16 => return (0..blocks).flat_map(|_| f16::from_f32(rng.float()).to_le_bytes()).collect(),
        Quant::BF16 => return (0..blocks).flat_map(|_| bf16::from_f32(rng.float()).to_le_bytes()).collect(),
        Quant::Q4_0 => (&[0], 1.0 / 8.0),
        Quant::Q4_1 => (&[0, 2], 1.0 / 16.0),
        Quant::Q5_0 => (&[0], 1.0 / 16.0),
        Quant::Q5_1 => (&[0, 2], 1.0 / 32.0),
        Quant::Q8_0 => (&[0], 1.0 / 128.0),
        Quant::Q4_K => (&[0, 2], 1.0 / 16.0 / 64.0),
        Quant::Q5_K => (&[0, 2], 1.0 / 32.0 / 64.0),
        Quant::Q6_K => (&[208], 1.0 / 32.0 / 128.0),
    };
    let mut bytes: Vec<u8> = (0..blocks * quant.block_bytes()).map(|_| rng.bits() as u8).collect();
    for block in bytes.chunks_exact_mut(quant.block_bytes()) {
        for &at in scales {
            block[at..at + 2].copy_from_slice(&f16::from_f32(rng.float() * size).to_le_bytes());
        }
    }
    bytes
}

/// A weight matrix as GGUF has it: what the products are computed from here.
pub struct Weights {
    pub quant: Quant,
    pub gguf: Vec<u8>,
    pub k: usize,
    pub n: usize,
}

impl Weights {
    /// Random ones.
    pub fn random(quant: Quant, k: usize, n: usize, rng: &mut Rng) -> Weights {
        Weights { quant, gguf: gguf(quant, k, n, rng), k, n }
    }
    /// The element (k, n).
    pub fn at(&self, k: usize, n: usize) -> f32 {
        Layout::Gguf.decode(self.quant, &self.gguf, (self.k, self.n), k, n)
    }
    /// As the kernels of a device take them; packed by the CPU.
    pub fn packed(&self, stream: &Stream) -> PackedTensor {
        let layout = stream.device().layout();
        let packed = tegula_kernels::pack::pack_as(layout, &CPU, self.quant, &self.gguf, self.k, self.n).unwrap();
        match place() {
            Some(device) => packed.to(&device).unwrap(),
            None => packed,
        }
    }
}

/// An extent of K: an odd number of blocks, or about `k` of a float format.
pub fn odd_k(quant: Quant, k: usize) -> usize {
    match quant.block() {
        1 => k | 1,
        block => (k / block / 2 * 2 + 1) * block,
    }
}

/// That each value is within the bound of the wanted one: `bound(want)` for each.
#[track_caller]
pub fn close(what: &str, got: &[f32], want: &[f64], bound: impl Fn(usize, f64) -> f64) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(g) - w).abs();
        assert!(error <= bound(i, w), "{what}: value {i} is {g}, want {w}: error {error:e}, bound {:e}", bound(i, w));
    }
}

/// That the bits are equal.
#[track_caller]
pub fn same_bits<T: Elem>(what: &str, got: &[T], want: &[T]) {
    assert_eq!(got.len(), want.len(), "{what}: number of values");
    if let Some(i) = (0..got.len()).find(|&i| got[i].bits() != want[i].bits()) {
        panic!("{what}: value {i} is {:?}, want {:?}", got[i], want[i]);
    }
}

/// Half a unit in the last place of an f32 near 1.
pub const U: f64 = 1.0 / (1u64 << 24) as f64;
