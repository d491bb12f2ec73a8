//! Matrix products: a block against the fma loop, whole products against OpenBLAS, two threads against one.

use tegula::{ir::Quant, prelude::*};
use tegula_kernels::{
    basic::matmul,
    linear::{Epilogue, linear},
    pack::pack,
};

use crate::Outcome;
use crate::blas::Blas;
use crate::clock::{median, thread_seconds, wall_seconds};
use crate::peers::fma_peak;
use crate::report::Gate;

/// BM, BN, BK of products of plain and of packed matrices.
const PLAIN: [usize; 3] = [128, 256, 256];
const PACKED: [usize; 3] = [64, 512, 256];

/// `c` (BM, BN) = `times` products of tiles in turn; all of it stays in the caches.
#[kernel]
fn block<BM: Dim, BN: Dim, BK: Dim>(a: View<f32, 2>, b: Packed, c: ViewMut<f32, 2>, times: Scalar<i32>) {
    let mut acc = zeros::<f32, (BM, BN)>();
    for i in 0..times {
        acc = dot(a.load::<(BM, BK)>((0, i % 2)), b.load::<(BK, BN)>((i % 2, 0)).dequant(), acc);
    }
    c.store((0, 0), acc);
}

/// The inner loop of products, its operands in the caches, against a loop of fma.
pub fn micro_kernel(device: &Device) -> Outcome<Gate> {
    let (m, n, k, times) = (48, 128, 256, 64);
    let a = Tensor::<f32>::from_slice([m, 2 * k], &random(m * 2 * k))?;
    let b = pack(&device.stream(), Quant::F32, &bytes(&random(n * 2 * k)), 2 * k, n)?;
    let mut c = Tensor::<f32>::zeros([m, n])?;
    let work = (2 * m * n * k * times) as f64;
    let mut samples = vec![];
    for _ in 0..102 {
        let top = fma_peak();
        let time = thread_seconds(|| block::launch(&a, &b, &mut c, times as i32).dims(m, n, k).grid(1).run(device))?;
        samples.push((work / time, top));
    }
    // The first compiles.
    samples.remove(0);
    let (ours, peak) = (median(samples.iter().map(|s| s.0)), median(samples.iter().map(|s| s.1)));
    let ratio = median(samples.iter().map(|s| s.0 / s.1));
    Ok(Gate::ratio("f32 block of products / fma loop", (ours * 1e-9, peak * 1e-9), "GFLOP/s", ratio, 0.90))
}

/// Plain and packed n × n × n products against OpenBLAS, one thread each.
pub fn against_blas(device: &Device, n: usize, peers: &[Blas]) -> Outcome<[Gate; 2]> {
    let names = [format!("GEMM {n} / OpenBLAS"), format!("GEMM {n}, B packed / OpenBLAS")];
    let bounds = [0.85, 0.95];
    if peers.is_empty() {
        let [plain, packed] = names;
        return Ok([Gate::skipped(plain, bounds[0]), Gate::skipped(packed, bounds[1])]);
    }
    let (a, b) = (random(n * n), random(n * n));
    let transposed: Vec<f32> = (0..n * n).map(|i| b[i % n * n + i / n]).collect();
    let (x, y) = (Tensor::<f32>::from_slice([n, n], &a)?, Tensor::<f32>::from_slice([n, n], &b)?);
    let w = pack(&device.stream(), Quant::F32, &bytes(&transposed), n, n)?;
    let mut outs = [Tensor::<f32>::zeros([n, n])?, Tensor::<f32>::zeros([n, n])?];
    let mut expected = vec![0.0; n * n];
    let rate = |time: f64| 2.0 * (n as f64).powi(3) / time;
    let mut samples = vec![];
    for _ in 0..if n > 600 { 42 } else { 102 } {
        let [plain, packed] = &mut outs;
        let ours = [
            thread_seconds(|| plain_product(device, &x, &y, plain))?,
            thread_seconds(|| packed_product(device, &x, &w, packed))?,
        ];
        // The best of the peers, whichever it is this time.
        let mut theirs = 0f64;
        for peer in peers {
            theirs = theirs.max(rate(thread_seconds(|| peer.sgemm(n, x.as_slice(), y.as_slice(), &mut expected))?));
        }
        samples.push((ours.map(rate), theirs));
    }
    samples.remove(0);
    for (out, name) in outs.iter().zip(&names) {
        let worst = out.as_slice().iter().zip(&expected).map(|(o, e)| (o - e).abs()).fold(0f32, f32::max);
        // Sums of n products of numbers within ±1, rounded n times in another order.
        let allowed = n as f32 * 1e-6;
        if worst > allowed {
            return Err(format!("{name}: results differ by {worst}, at most {allowed} is rounding").into());
        }
    }
    let theirs = median(samples.iter().map(|s| s.1)) * 1e-9;
    Ok(std::array::from_fn(|i| {
        let ours = median(samples.iter().map(|s| s.0[i])) * 1e-9;
        let ratio = median(samples.iter().map(|s| s.0[i] / s.1));
        Gate::ratio(names[i].clone(), (ours, theirs), "GFLOP/s", ratio, bounds[i])
    }))
}

/// Two threads against one, over neighbouring runs in which no thread had to give way to another program.
pub fn two_threads(one: &Device, two: &Device) -> Outcome<Gate> {
    const WANTED: usize = 25;
    let n = 1024;
    let x = Tensor::<f32>::from_slice([n, n], &random(n * n))?;
    let w = pack(&one.stream(), Quant::F32, &bytes(&random(n * n)), n, n)?;
    let mut y = Tensor::<f32>::zeros([n, n])?;
    // A few rows, to have the second thread awake when the clock starts.
    let few = Tensor::<f32>::from_slice([PACKED[0], n], &random(PACKED[0] * n))?;
    let mut out = Tensor::<f32>::zeros([PACKED[0], n])?;
    packed_product(one, &x, &w, &mut y)?;
    let (mut pairs, mut tried, mut disturbed) = (vec![], 0, [0, 0]);
    while pairs.len() < WANTED && tried < 1500 {
        tried += 1;
        let single = wall_seconds(1, || packed_product(one, &x, &w, &mut y))?;
        packed_product(two, &few, &w, &mut out)?;
        let double = wall_seconds(2, || packed_product(two, &x, &w, &mut y))?;
        if !single.1 && !double.1 {
            pairs.push((single.0, double.0));
        }
        disturbed[0] += usize::from(single.1);
        disturbed[1] += usize::from(double.1);
    }
    let [alone, together] = disturbed;
    println!(
        "1 against 2 threads: {tried} pairs, of which others disturbed {alone} runs of one and {together} of two threads"
    );
    let rate = |time: f64| 2e-9 * (n as f64).powi(3) / time;
    let ours = median(pairs.iter().map(|p| rate(p.1)));
    let beside = median(pairs.iter().map(|p| rate(p.0)));
    let gate = Gate::ratio(
        format!("GEMM {n}, B packed, 2 threads / 1"),
        (ours, beside),
        "GFLOP/s",
        median(pairs.iter().map(|p| p.0 / p.1)),
        1.7,
    );
    Ok(if pairs.len() < 20 { gate.too_noisy() } else { gate })
}

fn plain_product(device: &Device, a: &Tensor<f32>, b: &Tensor<f32>, c: &mut Tensor<f32>) -> Result<(), LaunchError> {
    let [bm, bn, bk] = PLAIN;
    matmul::launch(a, b, c).dims(bm, bn, bk).run(device)
}

fn packed_product(device: &Device, x: &Tensor<f32>, w: &PackedTensor, y: &mut Tensor<f32>) -> Result<(), LaunchError> {
    let [bm, bn, bk] = PACKED;
    let grid = [w.n().div_ceil(bn), x.shape()[0].div_ceil(bm)];
    linear::launch(x, w, y).dims(bm, bn, bk).cfg(Epilogue::default()).grid(grid).run(device)
}

/// Numbers within ±1.
fn random(n: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}
