//! Devices: what runs kernels.
//!
//! A [`Device`] is a handle on a [`Target`], which turns IR into something that runs ([`Program`]). What all targets
//! share is here: which programs a process has ([`Device::launch`](Executor::launch) finds one by the launch's key),
//! warnings about kernels of too many variants, checks of arguments, and how errors look.

mod args;
mod cpu;
pub mod cuda;
mod emulated;
mod error;
mod modules;
mod named;
mod oracle;
mod place;
mod report;
mod stream;
mod variants;

pub use cpu::{Cpu, CpuOptions, Level};
pub use cuda::{Cuda, CudaOptions};
pub use emulated::{Arch, Completion, Emulated, EmulatedOptions, Launched, OnLaunch};
pub use error::{DeviceError, Failure};
pub use named::Settings;
pub use oracle::{Oracle, OracleOptions};
pub use report::Printer;
pub use stream::{Event, Graph, Stream};

use crate::{
    memory::Buffer,
    tensor::{PackedTensor, Tensor, TensorError},
};
use rustc_hash::FxBuildHasher;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};
use tegula_ir::{Kernel, Quant, Type, layout::Layout};
use tegula_lang::{
    Elem,
    launch::{ArgData, Executor, LaunchDesc, LaunchError, LaunchKey},
};
use variants::Variants;

/// What kernels are compiled for and run on.
pub trait Target: Send + Sync {
    /// For messages: `cpu:x86-64-v3`, `oracle`, `emulated:sm_80`.
    fn name(&self) -> String;

    /// What kernels are compiled for: `cpu:x86-64-v3`, `sm_80`. Decides how large their tiles may be.
    fn compiles_for(&self) -> String {
        self.name()
    }

    /// The layout in which this target's kernels read packed weights.
    fn layout(&self) -> Layout;

    /// Makes a kernel, which must verify, ready to run. Slow the first time; results are kept by the caller, and by the
    /// target if it can find them again by the kernel's text. `checked`: index and division checks are compiled in.
    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError>;

    /// Whether a kernel of many variants is worth a warning: each costs a compilation while the program waits.
    fn counts_variants(&self) -> bool {
        true
    }

    /// So many kernels may be loaded at the same time with profit.
    fn load_parallelism(&self) -> usize {
        1
    }

    /// Whether its kernels work in memory of its own, from [`Target::allocate`]. Otherwise they are given the host's alone.
    fn has_own_memory(&self) -> bool {
        false
    }

    /// Memory for a tensor, where its kernels reach it: zeros, or unspecified contents.
    fn allocate(&self, bytes: usize, _zeroed: bool) -> Result<Buffer, TensorError> {
        Ok(Buffer::try_zeroed(bytes)?)
    }

    /// A new queue of work, if launches are to return before they have ended.
    fn queue(&self) -> Result<Option<Arc<cuda::Queue>>, DeviceError> {
        Ok(None)
    }

    /// Waits for the work that was launched on the device itself, without a stream.
    fn synchronize(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A kernel that is ready to run.
pub trait Program: Send + Sync {
    /// Runs all programs of a grid and returns when they are done, or when the target sees to it that all that uses the
    /// same memory comes after them.
    ///
    /// # Safety
    /// The arguments fit the kernel's parameters, facts included; each grid axis is 1 to `i32::MAX`; what mutable views
    /// reach is written by nobody else meanwhile.
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError>;

    /// The same in a queue of the target's, if it has one: may return before they are done.
    ///
    /// # Safety
    /// As for [`Program::run`]. What arguments borrow from tensors may be needed longer: their owners are the target's to
    /// keep.
    unsafe fn run_on(
        &self,
        _queue: Option<&Arc<cuda::Queue>>,
        args: &[ArgData<'_>],
        grid: [u32; 3],
    ) -> Result<(), DeviceError> {
        // SAFETY: this function's contract.
        unsafe { self.run(args, grid) }
    }
}

/// A device. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    target: Box<dyn Target>,
    own_memory: bool,
    programs: RwLock<HashMap<(LaunchKey, bool), Arc<dyn Program>, FxBuildHasher>>,
    variants: Mutex<Variants>,
    /// Calls of [`Device::preparing`] that are running.
    preparing: AtomicUsize,
}

impl Device {
    /// The host's processor, with all its cores, the user's kernel cache, and the compiler that [`crate::compile::find`]
    /// finds. Nothing is compiled, and no error shows, before a kernel is launched.
    pub fn cpu() -> Device {
        Device::cpu_with(CpuOptions::default())
    }

    /// The host's processor.
    pub fn cpu_with(options: CpuOptions) -> Device {
        Device::new(Cpu::new(options))
    }

    /// An emulated GPU of an architecture: `sm_80` or `sm_90a`. Strict, on all cores, with the user's kernel cache.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn emulated(arch: &str) -> Result<Device, DeviceError> {
        Device::emulated_with(arch, EmulatedOptions::default())
    }

    /// An emulated GPU, with a choice of checks.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn emulated_with(arch: &str, options: EmulatedOptions) -> Result<Device, DeviceError> {
        Ok(Device::new(Emulated::new(arch, options)?))
    }

    /// The oracle: runs the IR itself, slowly, as its definition says.
    pub fn oracle() -> Device {
        Device::oracle_with(OracleOptions::default())
    }

    /// The oracle, with a choice of checks.
    pub fn oracle_with(options: OracleOptions) -> Device {
        Device::new(Oracle::new(options))
    }

    /// An NVIDIA GPU, by its number as CUDA counts them, with the user's kernel cache. The driver's library is loaded now.
    ///
    /// # Errors
    /// There is no driver, no such GPU, or it is too old: the error says what to do.
    pub fn cuda(ordinal: u32) -> Result<Device, DeviceError> {
        Device::cuda_with(ordinal, CudaOptions::default())
    }

    /// An NVIDIA GPU.
    ///
    /// # Errors
    /// As for [`Device::cuda`].
    pub fn cuda_with(ordinal: u32, options: CudaOptions) -> Result<Device, DeviceError> {
        Ok(Device::new(Cuda::new(ordinal, options)?))
    }

    /// A device of one's own.
    pub fn new(target: impl Target + 'static) -> Device {
        let (programs, variants, own_memory) = (RwLock::default(), Mutex::default(), target.has_own_memory());
        let preparing = AtomicUsize::new(0);
        Device { inner: Arc::new(Inner { target: Box::new(target), own_memory, programs, variants, preparing }) }
    }

    /// For messages: `cpu:x86-64-v3`, `oracle`, `emulated:sm_80`.
    pub fn name(&self) -> String {
        self.inner.target.name()
    }

    /// What kernels are compiled for: `cpu:x86-64-v3`, `sm_80`.
    pub fn compiles_for(&self) -> String {
        self.inner.target.compiles_for()
    }

    /// The layout in which this device's kernels read packed weights.
    pub fn layout(&self) -> Layout {
        self.inner.target.layout()
    }

    /// A stream of work: launches on it run one after the other.
    pub fn stream(&self) -> Stream {
        Stream::new(self)
    }

    /// Waits for the work that was launched on the device itself, as `.run(&device)` does. Work of a stream: see
    /// [`Stream::synchronize`].
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.inner.target.synchronize()
    }

    /// Zeros, where this device's kernels can reach them.
    pub fn zeros<T: Elem>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        Tensor::over(shape, |bytes| self.inner.target.allocate(bytes, true))
    }

    /// An output for this device's kernels: see [`Tensor::empty`].
    pub fn empty<T: Elem>(&self, shape: impl AsRef<[usize]>) -> Result<Tensor<T>, TensorError> {
        // Any other bytes are no `bool`.
        let zeroed = T::ELEM == tegula_ir::Elem::Bool;
        Tensor::over(shape, |bytes| {
            let buffer = self.inner.target.allocate(bytes, zeroed)?;
            buffer.set_written(false);
            Ok(buffer)
        })
    }

    /// Values, where this device's kernels can reach them.
    pub fn tensor<T: Elem>(&self, shape: impl AsRef<[usize]>, values: &[T]) -> Result<Tensor<T>, TensorError> {
        if !self.inner.own_memory {
            return Tensor::from_slice(shape, values);
        }
        let mut tensor = self.empty(shape)?;
        tensor.write(values)?;
        Ok(tensor)
    }

    /// An empty packed matrix in this device's layout, for a packing kernel to fill.
    pub fn packed(&self, quant: Quant, k: usize, n: usize) -> Result<PackedTensor, TensorError> {
        self.packed_as(self.layout(), quant, k, n)
    }

    /// An empty packed matrix in a layout of the caller's.
    pub fn packed_as(&self, layout: Layout, quant: Quant, k: usize, n: usize) -> Result<PackedTensor, TensorError> {
        PackedTensor::over((quant, layout), (k, n), |bytes| self.inner.target.allocate(bytes, true))
    }

    /// A packed matrix of which the bytes, in `layout`, are `bytes`, where this device's kernels can reach it.
    pub fn packed_from(
        &self,
        bytes: &[u8],
        quant: Quant,
        layout: Layout,
        k: usize,
        n: usize,
    ) -> Result<PackedTensor, TensorError> {
        if !self.inner.own_memory {
            return PackedTensor::from_bytes(bytes, quant, layout, k, n);
        }
        let mut packed = PackedTensor::over((quant, layout), (k, n), |bytes| self.inner.target.allocate(bytes, false))?;
        packed.write(bytes)?;
        Ok(packed)
    }

    /// Compiles kernels, several at a time, so that launching them later costs nothing more; gives the first error, after
    /// all are done. Take them from launches: `k(&a, &mut b).dims(..).ir()?`. For news about progress see
    /// [`CpuOptions::on_progress`].
    pub fn prepare(&self, kernels: &[Kernel]) -> Result<(), DeviceError> {
        let next = AtomicUsize::new(0);
        let first_error = Mutex::new(None);
        std::thread::scope(|s| {
            for _ in 0..self.inner.target.load_parallelism().min(kernels.len()) {
                s.spawn(|| {
                    while let Some(kernel) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Err(e) = self.inner.target.load(kernel, false) {
                            first_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        }
                    }
                });
            }
        });
        first_error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Kernels that are ready, each variant counted.
    pub fn num_kernels(&self) -> usize {
        self.inner.programs.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Calls `f`, whose launches are there to have kernels ready: that it makes many variants of one is meant, and nothing
    /// to be warned of.
    pub fn preparing<R>(&self, f: impl FnOnce() -> R) -> R {
        /// Ends it even if `f` panics.
        struct Until<'a>(&'a AtomicUsize);
        impl Drop for Until<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.inner.preparing.fetch_add(1, Ordering::Relaxed);
        let _until = Until(&self.inner.preparing);
        f()
    }

    /// Runs a kernel given as IR; a grid without programs runs nothing. Everything is checked: the kernel, that the
    /// arguments fit its parameters (and their facts), the grid. To run it often, [`Device::load`] it.
    ///
    /// What cannot be checked is that an argument's address is one: arguments are to come from tensors and views, by
    /// [`Arg::arg`](tegula_lang::launch::Arg::arg). A [`ViewArg`](tegula_lang::launch::ViewArg) or `PackedArg` that is put
    /// together by hand, or changed, must point to as many elements as it says, borrowed for as long as it lives.
    pub fn run(&self, kernel: &Kernel, args: &[ArgData<'_>], grid: [u32; 3], checked: bool) -> Result<(), DeviceError> {
        self.load(kernel, checked)?.run(args, grid)
    }

    /// Verifies and loads a kernel given as IR.
    pub fn load(&self, kernel: &Kernel, checked: bool) -> Result<Loaded, DeviceError> {
        kernel.verify().map_err(|e| DeviceError::Invalid(e.to_string()))?;
        let types = kernel.body.args.iter().map(|v| kernel.ty(*v).clone()).collect();
        let program = self.inner.target.load(kernel, checked)?;
        Ok(Loaded { name: kernel.name.clone(), params: kernel.params.clone(), types, program, device: self.clone() })
    }

    fn build(&self, launch: &LaunchDesc<'_>) -> Result<Arc<dyn Program>, LaunchError> {
        let kernel = launch.build()?;
        let failed = |e: DeviceError| LaunchError::executor(launch.kernel.name, e);
        let program = self.inner.target.load(&kernel, launch.checked).map_err(failed)?;
        let mut programs = self.inner.programs.write().unwrap_or_else(PoisonError::into_inner);
        if programs.insert((launch.key, launch.checked), program.clone()).is_none()
            && self.inner.target.counts_variants()
            && self.inner.preparing.load(Ordering::Relaxed) == 0
        {
            drop(programs);
            let mut variants = self.inner.variants.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(warning) = variants.add(launch.kernel, &launch.key) {
                tracing::warn!("{warning}");
            }
        }
        Ok(program)
    }
}

impl Executor for Device {
    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        self.launch_on(None, launch)
    }
}

impl Device {
    /// A launch in a queue of this device's target.
    fn launch_on(&self, queue: Option<&Arc<cuda::Queue>>, launch: &LaunchDesc<'_>) -> Result<(), LaunchError> {
        if let Some((i, expected, found)) = place::not_on_the_host(self, launch.args) {
            let (kernel, argument) = (launch.kernel.name, launch.kernel.params[i].name);
            return Err(LaunchError::Argument { kernel, argument, expected, found });
        }
        let key = (launch.key, launch.checked);
        let known = self.inner.programs.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let program = match known {
            Some(program) => program,
            None => self.build(launch)?,
        };
        // SAFETY: the launch has checked arguments and grid; the key stands for the facts of these arguments; Rust's
        // borrows, which the arguments hold, keep others from the memory.
        let done = unsafe { program.run_on(queue, launch.args, launch.grid) };
        done.map_err(|e| LaunchError::executor(launch.kernel.name, e))
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

/// A kernel that was given as IR, ready to run.
pub struct Loaded {
    name: String,
    params: Vec<String>,
    types: Vec<Type>,
    program: Arc<dyn Program>,
    device: Device,
}

impl Loaded {
    /// Runs a grid of it; see [`Device::run`], also about what arguments must be.
    pub fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        args::check(&self.name, &self.params, &self.types, args)?;
        if let Some((i, expected, found)) = place::not_on_the_host(&self.device, args) {
            let argument = self.params.get(i).cloned().unwrap_or_default();
            return Err(DeviceError::Argument { kernel: self.name.clone(), argument, expected, found });
        }
        if let Some(n) = grid.iter().find(|n| **n > i32::MAX as u32) {
            return Err(DeviceError::Grid(format!("expected at most {} programs along an axis, found {n}", i32::MAX)));
        }
        if grid.contains(&0) {
            return Ok(());
        }
        // SAFETY: checked above; the arguments borrow their memory.
        unsafe { self.program.run(args, grid) }
    }
}
