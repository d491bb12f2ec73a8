//! What a device can do at best, measured: copying memory, multiply-adds in f32, and products of tensor cores.

use crate::{device::Chosen, options::Sizes};
use serde_json::{Value, json};
use std::{ffi::c_void, sync::Arc};
use tegula::device::cuda::{CudaError, Event, Gpu, Image, Memory, Module, Shape, Stream};

/// Rates that nothing exceeds.
#[derive(Clone, Copy, Debug)]
pub struct Ceilings {
    /// Bytes read and written while memory is copied.
    pub bytes_per_s: f64,
    /// f32 operations of chains of fma.
    pub flops_per_s: f64,
    /// Operations of mma on bf16.
    pub tensor_flops_per_s: f64,
    measured: bool,
}

impl Default for Ceilings {
    fn default() -> Ceilings {
        let none = f64::INFINITY;
        Ceilings { bytes_per_s: none, flops_per_s: none, tensor_flops_per_s: none, measured: false }
    }
}

/// Eight independent chains of fma in each thread.
const FMA: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 rounds) {
  .reg .pred %p; .reg .b32 %i, %n, %r<4>; .reg .f32 %a<8>, %x; .reg .b64 %o<3>;
  ld.param.u64 %o0, [out]; ld.param.u32 %n, [rounds]; mov.u32 %r0, %tid.x; cvt.rn.f32.u32 %x, %r0; mov.u32 %i, 0;
  mov.f32 %a0, 0f3F800000; mov.f32 %a1, %a0; mov.f32 %a2, %a0; mov.f32 %a3, %a0;
  mov.f32 %a4, %a0; mov.f32 %a5, %a0; mov.f32 %a6, %a0; mov.f32 %a7, %a0;
L:
  fma.rn.f32 %a0, %a0, %x, %x; fma.rn.f32 %a1, %a1, %x, %x; fma.rn.f32 %a2, %a2, %x, %x; fma.rn.f32 %a3, %a3, %x, %x;
  fma.rn.f32 %a4, %a4, %x, %x; fma.rn.f32 %a5, %a5, %x, %x; fma.rn.f32 %a6, %a6, %x, %x; fma.rn.f32 %a7, %a7, %x, %x;
  fma.rn.f32 %a0, %a0, %x, %x; fma.rn.f32 %a1, %a1, %x, %x; fma.rn.f32 %a2, %a2, %x, %x; fma.rn.f32 %a3, %a3, %x, %x;
  fma.rn.f32 %a4, %a4, %x, %x; fma.rn.f32 %a5, %a5, %x, %x; fma.rn.f32 %a6, %a6, %x, %x; fma.rn.f32 %a7, %a7, %x, %x;
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra L;
  add.f32 %a0, %a0, %a1; add.f32 %a2, %a2, %a3; add.f32 %a4, %a4, %a5; add.f32 %a6, %a6, %a7;
  add.f32 %a0, %a0, %a2; add.f32 %a4, %a4, %a6; add.f32 %a0, %a0, %a4;
  mul.wide.u32 %o1, %r0, 4; add.s64 %o2, %o0, %o1; st.global.f32 [%o2], %a0; ret;
}";
/// Operations of a thread in a round.
const FMA_OPS: f64 = 32.0;

/// Four independent chains of m16n8k16 in each warp. H100s have a quicker instruction (wgmma) than this one.
const MMA: &str = ".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 rounds) {
  .reg .pred %p; .reg .b32 %i, %n, %r<4>; .reg .f32 %a<16>; .reg .b64 %o<3>;
  ld.param.u64 %o0, [out]; ld.param.u32 %n, [rounds]; mov.u32 %r0, %tid.x; mov.u32 %i, 0;
  mov.f32 %a0, 0f00000000; mov.f32 %a1, %a0; mov.f32 %a2, %a0; mov.f32 %a3, %a0;
  mov.f32 %a4, %a0; mov.f32 %a5, %a0; mov.f32 %a6, %a0; mov.f32 %a7, %a0;
  mov.f32 %a8, %a0; mov.f32 %a9, %a0; mov.f32 %a10, %a0; mov.f32 %a11, %a0;
  mov.f32 %a12, %a0; mov.f32 %a13, %a0; mov.f32 %a14, %a0; mov.f32 %a15, %a0;
L:
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%a0, %a1, %a2, %a3}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%a0, %a1, %a2, %a3};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%a4, %a5, %a6, %a7}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%a4, %a5, %a6, %a7};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%a8, %a9, %a10, %a11}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%a8, %a9, %a10, %a11};
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%a12, %a13, %a14, %a15}, {%r0, %r0, %r0, %r0}, {%r0, %r0}, {%a12, %a13, %a14, %a15};
  add.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n; @%p bra L;
  add.f32 %a0, %a0, %a4; add.f32 %a8, %a8, %a12; add.f32 %a0, %a0, %a8;
  mul.wide.u32 %o1, %r0, 4; add.s64 %o2, %o0, %o1; st.global.f32 [%o2], %a0; ret;
}";
/// Operations of a warp in a round.
const MMA_OPS: f64 = 4.0 * 2.0 * 16.0 * 8.0 * 16.0;

impl Ceilings {
    /// Measures a GPU; the emulator has no rates.
    pub fn measure(device: Chosen, sizes: Sizes) -> Result<Ceilings, String> {
        match device {
            Chosen::Cuda(n) => Ceilings::of_gpu(n, sizes).map_err(|e| e.to_string()),
            Chosen::Emulated(_) => Ok(Ceilings::default()),
        }
    }

    fn of_gpu(ordinal: u32, sizes: Sizes) -> Result<Ceilings, CudaError> {
        let gpu = Gpu::open(ordinal)?;
        let stream = Arc::new(Stream::new(&gpu)?);
        let real = sizes == Sizes::Real;
        let bytes = if real { 1 << 30 } else { 1 << 16 };
        let (from, to) = (Memory::new(&stream, bytes)?, Memory::new(&stream, bytes)?);
        from.fill(&stream, 0, 1, bytes)?;
        let copy = best(&gpu, &stream, || to.copy_from(&stream, 0, &from, 0, bytes))?;
        let out = Memory::new(&stream, 4096)?;
        let blocks = if real { gpu.multiprocessors() * 8 } else { 2 };
        let rounds = if real { 2000 } else { 3 };
        let rate = |text: &str, operations: f64| -> Result<f64, CudaError> {
            let function = Module::load(&gpu, Image::Ptx(text))?.function("k")?;
            let shape = Shape { grid: [blocks, 1, 1], block: [256, 1, 1], cluster: None, shared_bytes: 0 };
            let (mut address, mut n) = (out.address(), rounds);
            let seconds = best(&gpu, &stream, || {
                let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut n).cast()];
                // SAFETY: the kernels above take these two; 256 numbers fit 4096 bytes.
                unsafe { function.launch(&stream, &shape, &mut params) }
            })?;
            Ok(operations * f64::from(blocks) * f64::from(rounds) / seconds)
        };
        Ok(Ceilings {
            bytes_per_s: 2.0 * bytes as f64 / copy,
            flops_per_s: rate(FMA, FMA_OPS * 256.0)?,
            tensor_flops_per_s: rate(MMA, MMA_OPS * 8.0)?,
            measured: true,
        })
    }

    /// For the report.
    pub fn json(&self) -> Value {
        if !self.measured {
            return json!({ "note": "not measured: the emulator has no time" });
        }
        json!({
            "copy_gb_per_s": self.bytes_per_s / 1e9,
            "f32_fma_tflop_per_s": self.flops_per_s / 1e12,
            "bf16_mma_tflop_per_s": self.tensor_flops_per_s / 1e12,
        })
    }
}

/// The best of a few, in seconds, after one for warming up.
fn best(gpu: &Arc<Gpu>, stream: &Stream, mut go: impl FnMut() -> Result<(), CudaError>) -> Result<f64, CudaError> {
    let (start, end) = (Event::timed(gpu)?, Event::timed(gpu)?);
    let mut least = f64::INFINITY;
    for i in 0..6 {
        start.record(stream)?;
        go()?;
        end.record(stream)?;
        end.synchronize()?;
        if i > 0 {
            least = least.min(end.since(&start)?.as_secs_f64());
        }
    }
    Ok(least.max(1e-9))
}
