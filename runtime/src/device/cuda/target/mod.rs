//! A GPU as a target of kernels: what is compiled, where tensors are, and how work is ordered.
//!
//! - `order`: the lock under which work is put into streams; `uses`: which queues have work under way on a block of
//!   memory, and the waits that follow;
//! - `queue`: streams as the runtime uses them; `recording`: what they record; `recent`: what errors name;
//! - `block`: memory of tensors; `staging`: small copies to it;
//! - `code`: a kernel's machine code or PTX, loaded;
//! - `launch`: one launch; `host_args`: arguments that lie in the host's memory; `reports`: prints and failed checks.
//!
//! All threads may use a device and its streams at once. A thread that records a stream has it to itself: others that launch
//! on it wait. Two limits: a launch whose arguments lie on the host, or whose kernel reports, waits for the device's own
//! queue, and holds up what is in it; and code that is dropped while any stream is recorded stays loaded, since unloading
//! would spoil the recording.

mod block;
mod code;
mod host_args;
mod launch;
mod order;
mod queue;
mod recent;
mod recording;
mod reports;
mod staging;
mod uses;

pub use queue::Queue;
pub(in crate::device) use recording::Recording;

use super::{CudaError, Gpu};
use crate::{
    bundle::{Machine, Shipped},
    cache::DiskCache,
    compile::{OnProgress, Program as CompilerProgram},
    device::{DeviceError, Printer, Program, Target, modules::Modules},
    memory::Buffer,
    tensor::TensorError,
};
use block::Block;
use code::Code;
use launch::Compiled;
use order::Order;
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tegula_ir::{Kernel, layout::Layout};

/// How a GPU is used.
pub struct CudaOptions {
    /// The bundle that kernels are taken from before all else.
    pub bundle: Shipped,
    /// Where compiled kernels are kept.
    pub cache: DiskCache,
    /// The compiler program.
    pub compiler: CompilerProgram,
    /// At most so many compiler processes. Without: one for each CPU.
    pub compilers: Option<usize>,
    /// Longest time that compiling one kernel may take.
    pub compile_timeout: Duration,
    /// Told about compilations, for progress bars.
    pub on_progress: Option<OnProgress>,
    /// Where prints of kernels go; standard output without.
    pub on_print: Option<Printer>,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            bundle: Shipped::OfProgram,
            cache: DiskCache::of_user(),
            compiler: CompilerProgram::new(),
            compilers: None,
            compile_timeout: Duration::from_secs(180),
            on_progress: None,
            on_print: None,
        }
    }
}

/// An NVIDIA GPU as a target.
pub struct Cuda {
    target: &'static str,
    /// Whether the driver has refused no machine code yet: it may be older than the assembler. Other errors say nothing
    /// about that.
    cubins: AtomicBool,
    modules: Modules<Code>,
    on_print: Option<Printer>,
    shared: Arc<Shared>,
}

/// What programs and tensors of a GPU share, in the whole process.
struct Shared {
    gpu: Arc<Gpu>,
    /// Where the device itself launches, and copies. Nobody records it.
    main: Arc<Queue>,
    order: Arc<Order>,
    staging: Mutex<staging::Staging>,
    reports: Mutex<reports::Buffer>,
}

impl Shared {
    /// That of the GPU of that number, which is opened once at a time.
    fn open(ordinal: u32) -> Result<Arc<Shared>, CudaError> {
        static OPEN: Mutex<Vec<(u32, Weak<Shared>)>> = Mutex::new(vec![]);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, shared)| shared.strong_count() > 0);
        if let Some(shared) = open.iter().filter(|o| o.0 == ordinal).find_map(|o| o.1.upgrade()) {
            return Ok(shared);
        }
        let (gpu, order) = (Gpu::open(ordinal)?, Arc::default());
        let main = Arc::new(Queue::new(&gpu, &order)?);
        let shared = Arc::new(Shared { gpu, main, order, staging: Mutex::default(), reports: Mutex::default() });
        open.push((ordinal, Arc::downgrade(&shared)));
        Ok(shared)
    }

    fn place(&self) -> String {
        format!("cuda:{}", self.gpu.ordinal())
    }

    /// An error, with the device.
    fn error(&self, error: CudaError) -> DeviceError {
        DeviceError::Cuda { place: self.place(), error: self.order.explain(error) }
    }
}

/// What a GPU's kernels are compiled for: its own features where they are used, else what every one has.
fn target(capability: (u32, u32)) -> Option<&'static str> {
    match capability {
        (9, 0) => Some("sm_90a"),
        (major, _) if major >= 8 => Some("sm_80"),
        _ => None,
    }
}

impl Cuda {
    /// Opens the GPU of that number.
    ///
    /// # Errors
    /// There is no driver, no such GPU, or it is too old: the error says what to do.
    pub fn new(ordinal: u32, options: CudaOptions) -> Result<Cuda, DeviceError> {
        let failed = |error| DeviceError::Cuda { place: format!("cuda:{ordinal}"), error };
        let shared = Shared::open(ordinal).map_err(failed)?;
        let gpu = &shared.gpu;
        let target = target(gpu.capability()).ok_or_else(|| {
            failed(CudaError::TooOld { ordinal, name: gpu.name().into(), capability: gpu.capability() })
        })?;
        let CudaOptions { bundle, cache, compiler, compilers, compile_timeout, on_progress, on_print } = options;
        Ok(Cuda {
            target,
            cubins: AtomicBool::new(true),
            modules: Modules::new(bundle, cache, compiler, compilers, compile_timeout, on_progress),
            on_print,
            shared,
        })
    }

    fn machine(&self, cubins: bool) -> Machine {
        let gpu = &self.shared.gpu;
        Machine::Gpu {
            name: format!("{} ({})", self.name(), gpu.name()),
            target: self.target.into(),
            capability: gpu.capability(),
            cubins,
        }
    }
}

impl Target for Cuda {
    fn name(&self) -> String {
        self.shared.place()
    }

    fn compiles_for(&self) -> String {
        self.target.into()
    }

    fn layout(&self) -> Layout {
        Layout::Gguf
    }

    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let load = |cubins| {
            let Shared { gpu, order, .. } = &*self.shared;
            self.modules.get(kernel, &self.machine(cubins), checked, |a| Code::open(&kernel.name, a, gpu, order))
        };
        let code = match load(self.cubins.load(Relaxed)) {
            Err(DeviceError::Cuda { error: e @ CudaError::Load { kind: "cubin", .. }, .. }) => {
                // PTX the driver translates itself.
                if self.cubins.swap(false, Relaxed) {
                    tracing::warn!("{}: {e}; taking PTX from now on", self.name());
                }
                load(false)?
            }
            loaded => loaded?,
        };
        Ok(Arc::new(Compiled { code, shared: self.shared.clone(), on_print: self.on_print.clone() }))
    }

    fn load_parallelism(&self) -> usize {
        self.modules.parallelism()
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: usize, zeroed: bool) -> Result<Buffer, TensorError> {
        Ok(Buffer::on_device(Block::new(&self.shared, bytes, zeroed)?))
    }

    fn queue(&self) -> Result<Option<Arc<Queue>>, DeviceError> {
        Ok(Some(Arc::new(Queue::new(&self.shared.gpu, &self.shared.order).map_err(|e| self.shared.error(e))?)))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.shared.main.synchronize().map_err(|e| self.shared.error(e))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn kernels_are_compiled_for_what_the_gpu_has() {
        let of = super::target;
        assert_eq!((of((8, 0)), of((8, 9)), of((9, 0))), (Some("sm_80"), Some("sm_80"), Some("sm_90a")));
        assert_eq!((of((10, 0)), of((12, 0)), of((7, 5))), (Some("sm_80"), Some("sm_80"), None));
    }
}
