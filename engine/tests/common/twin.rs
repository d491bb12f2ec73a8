//! A device that runs every launch twice, on an emulated GPU and on the CPU, from the same memory, and compares what they
//! leave there: bits where the language says that all executors have the same, else values within a bound.

use std::collections::BTreeMap;
use std::slice::{from_raw_parts, from_raw_parts_mut};
use std::sync::{Arc, Mutex};
use tegula::{
    Device, DeviceError,
    device::{Cpu, CpuOptions, Emulated, EmulatedOptions, Program, Target},
    ir::{Elem, Kernel, layout::Layout},
    launch::{ArgData, ViewArg},
};

/// What was compared so far: launches of each kernel, and what differed.
#[derive(Debug, Default)]
pub struct Compared {
    pub launches: BTreeMap<String, usize>,
    /// Those that make or take activations of 16 bits: two rows of codes for a row.
    pub sixteen_bits: BTreeMap<String, usize>,
    pub wrong: Vec<String>,
}

/// Kernels made of arithmetic that has the same bits everywhere.
const SAME_BITS: [&str; 5] = ["linear", "linear_quantised", "quantise", "embed", "rope_and_cache"];

/// The device, and its findings.
pub fn twin(arch: &str, options: EmulatedOptions) -> (Device, Arc<Mutex<Compared>>) {
    let compared = Arc::new(Mutex::new(Compared::default()));
    let gpu = Emulated::new(arch, options).expect("an architecture that is emulated");
    let twin = Twin { gpu, cpu: Cpu::new(CpuOptions::default()), compared: compared.clone() };
    (Device::new(twin), compared)
}

struct Twin {
    gpu: Emulated,
    cpu: Cpu,
    compared: Arc<Mutex<Compared>>,
}

impl Target for Twin {
    fn name(&self) -> String {
        format!("twin:{}", self.gpu.compiles_for())
    }
    fn compiles_for(&self) -> String {
        self.gpu.compiles_for()
    }
    fn layout(&self) -> Layout {
        self.gpu.layout()
    }
    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let (gpu, cpu) = (self.gpu.load(kernel, checked)?, self.cpu.load(kernel, checked)?);
        // Of `tegula_kernels::norm::rms_norm` the last part.
        let name = kernel.name.rsplit("::").next().unwrap_or_default().to_owned();
        // What makes codes stores them, their scales and their sums: once for 8 bits, twice for 16.
        let stores = kernel.text().lines().filter(|l| l.trim_start().starts_with("store ")).count();
        Ok(Arc::new(Both { name, gpu, cpu, rows_of_codes: stores / 3, compared: self.compared.clone() }))
    }
    fn load_parallelism(&self) -> usize {
        self.cpu.load_parallelism()
    }
}

struct Both {
    name: String,
    gpu: Arc<dyn Program>,
    cpu: Arc<dyn Program>,
    /// That a kernel which quantises makes of a row.
    rows_of_codes: usize,
    compared: Arc<Mutex<Compared>>,
}

impl Program for Both {
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        // SAFETY: this function's contract: nobody else touches the arguments, and both programs are of the same kernel.
        unsafe {
            let before = saved(args);
            self.gpu.run(args, grid)?;
            let on_gpu = saved(args);
            restore(args, &before);
            self.cpu.run(args, grid)?;
            let on_cpu = saved(args);
            restore(args, &on_gpu);
            let mut compared = self.compared.lock().expect("nobody panics with it");
            *compared.launches.entry(self.name.clone()).or_default() += 1;
            let quantises = self.name.ends_with("quantise");
            let wide = if quantises { self.rows_of_codes == 2 } else { takes_two_rows(args) };
            if wide {
                *compared.sixteen_bits.entry(self.name.clone()).or_default() += 1;
            }
            let differs = if SAME_BITS.contains(&self.name.as_str()) {
                (on_gpu != on_cpu).then(|| "other bits".to_owned())
            } else if self.name.ends_with("_quantise") {
                groups_differ(args, &on_gpu, &on_cpu, grid[0] as usize, self.rows_of_codes)
            } else {
                values_differ(args, &on_gpu, &on_cpu)
            };
            compared.wrong.extend(differs.map(|d| format!("{}: {d}", self.name)));
        }
        Ok(())
    }
}

/// Whether a product takes two rows of codes for a row of results.
fn takes_two_rows(args: &[ArgData<'_>]) -> bool {
    let (Some(ArgData::View(codes)), Some(y)) = (args.first(), written(args).next()) else { return false };
    codes.elem == Elem::I8 && codes.extents[0] == 2 * y.extents[0]
}

fn written<'a>(args: &'a [ArgData<'_>]) -> impl Iterator<Item = &'a ViewArg<'a>> {
    args.iter().filter_map(|a| match a {
        ArgData::View(v) if v.mutable => Some(v),
        _ => None,
    })
}

/// Bytes from a view's first element to its last. The engine's views go forward.
fn bytes(v: &ViewArg<'_>) -> usize {
    let rank = v.rank as usize;
    if v.extents[..rank].contains(&0) {
        return 0;
    }
    let last: i64 = v.extents[..rank].iter().zip(&v.strides[..rank]).map(|(n, s)| (n - 1) * s).sum();
    (last as usize + 1) * v.elem.bytes()
}

/// # Safety
/// The views are valid and nobody writes them meanwhile.
unsafe fn saved(args: &[ArgData<'_>]) -> Vec<Vec<u8>> {
    // SAFETY: bytes between elements of a view are inside its memory.
    written(args).map(|v| unsafe { from_raw_parts(v.ptr, bytes(v)) }.to_vec()).collect()
}

/// # Safety
/// As for [`saved`], and nobody reads them either.
unsafe fn restore(args: &[ArgData<'_>], all: &[Vec<u8>]) {
    for (v, bytes) in written(args).zip(all) {
        // SAFETY: as many bytes as were there.
        unsafe { from_raw_parts_mut(v.ptr, bytes.len()) }.copy_from_slice(bytes);
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Sums in another order, and functions: off by a few units in the last place of the largest values.
const FEW: f32 = 2e-5;

fn values_differ(args: &[ArgData<'_>], on_gpu: &[Vec<u8>], on_cpu: &[Vec<u8>]) -> Option<String> {
    written(args).zip(on_gpu.iter().zip(on_cpu)).find_map(|(v, (a, b))| {
        if v.elem != Elem::F32 {
            return (a != b).then(|| format!("other bits of {}", v.elem));
        }
        let (a, b) = (floats(a), floats(b));
        let largest = b.iter().filter(|x| x.is_finite()).fold(0.0f32, |m, x| m.max(x.abs()));
        let near = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a - b).abs() <= FEW * largest;
        let i = (0..a.len()).find(|&i| !near(a[i], b[i]))?;
        Some(format!("value {i} is {} on the GPU, {} on the CPU, of up to {largest}", a[i], b[i]))
    })
}

/// Codes, scales and sums, `split` rows of them for each of `rows`, of values that differ by little: they mean values at most a step apart.
fn groups_differ(
    args: &[ArgData<'_>],
    on_gpu: &[Vec<u8>],
    on_cpu: &[Vec<u8>],
    rows: usize,
    split: usize,
) -> Option<String> {
    let codes = written(args).next()?;
    let k = codes.extents[1] as usize;
    let meaning = |all: &[Vec<u8>]| -> (Vec<f32>, Vec<f32>) {
        let scales = floats(&all[1]);
        let scale = |row: usize, i: usize| scales[row * (k / 32) + i / 32];
        let code = |row: usize, i: usize| f32::from(all[0][row * k + i] as i8);
        let places = (0..rows).flat_map(|r| (0..k).map(move |i| (r * split, i)));
        places
            .map(|(r, i)| {
                let value: f32 = (r..r + split).map(|r| code(r, i) * scale(r, i)).sum();
                (value, scale(r + split - 1, i))
            })
            .unzip()
    };
    let ((a, steps), (b, _)) = (meaning(on_gpu), meaning(on_cpu));
    let largest = b.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let i = (0..a.len()).find(|&i| (a[i] - b[i]).abs() > 1.01 * steps[i] + FEW * largest)?;
    Some(format!("code {i} means {} on the GPU, {} on the CPU, at steps of {}", a[i], b[i], steps[i]))
}
