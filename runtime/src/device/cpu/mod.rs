//! The host's processor: kernels become shared objects, compiled by `tegulac`, cached on disk, and run by a pool of
//! threads.

mod level;
mod module;
mod words;

pub use level::Level;

use super::{
    DeviceError, Printer, Program, Target,
    modules::{Artifact, Modules},
    report::Reports,
};
use crate::{
    bundle::{Machine, Shipped},
    cache::DiskCache,
    compile::{OnProgress, Program as CompilerProgram},
    pool::{Pace, Pool, PoolError, PoolOptions},
};
use module::Module;
use std::{sync::Arc, time::Duration};
use tegula_ir::{
    Kernel,
    abi::{Ctx, FLAG_CHECKED},
    layout::Layout,
};
use tegula_lang::launch::ArgData;

/// How the CPU is used.
pub struct CpuOptions {
    /// Threads.
    pub pool: PoolOptions,
    /// Instruction set to compile for. Without: what `TEGULA_CPU` says, or the best that the processor has.
    pub level: Option<Level>,
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

impl Default for CpuOptions {
    fn default() -> CpuOptions {
        CpuOptions {
            pool: PoolOptions::default(),
            level: None,
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

/// The host's processor as a target.
pub struct Cpu {
    level: Result<Level, String>,
    modules: Modules<Module>,
    shared: Arc<Shared>,
}

/// What programs need to run.
struct Shared {
    /// Or why there is none, which launches tell.
    pool: Result<Pool, PoolError>,
    on_print: Option<Printer>,
}

impl Cpu {
    /// Starts the threads.
    pub fn new(options: CpuOptions) -> Cpu {
        let CpuOptions { bundle, cache, compiler, compilers, compile_timeout, on_progress, .. } = options;
        Cpu {
            level: options.level.map_or_else(Level::choose, Level::checked),
            modules: Modules::new(bundle, cache, compiler, compilers, compile_timeout, on_progress),
            shared: Arc::new(Shared { pool: Pool::new(&options.pool), on_print: options.on_print }),
        }
    }

    fn level(&self) -> Result<Level, DeviceError> {
        self.level.clone().map_err(DeviceError::Unsupported)
    }
}

impl Target for Cpu {
    fn name(&self) -> String {
        match &self.level {
            Ok(level) => format!("cpu:{}", level.name()),
            Err(_) => "cpu".into(),
        }
    }

    fn layout(&self) -> Layout {
        Layout::Panel16
    }

    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let machine = Machine::Cpu(self.level()?);
        let module = self.modules.get(kernel, &machine, checked, |artifact| match artifact {
            Artifact::Kept(entry) => Module::from_file(&entry.path, entry.meta),
            Artifact::Loose(bytes, meta) => Module::from_bytes(&bytes, meta),
            Artifact::Bundled(found) => Module::from_bytes(&found.bytes, found.meta),
        })?;
        let (flags, shared) = (if checked { FLAG_CHECKED } else { 0 }, self.shared.clone());
        Ok(Arc::new(Compiled { module, flags, shared, pace: Pace::default() }))
    }

    fn load_parallelism(&self) -> usize {
        self.modules.parallelism()
    }
}

/// A loaded kernel, and the threads to run it.
struct Compiled {
    module: Arc<Module>,
    flags: u32,
    shared: Arc<Shared>,
    pace: Pace,
}

impl Program for Compiled {
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        let total = grid.iter().try_fold(1u64, |n, g| n.checked_mul(u64::from(*g)));
        let Some(total) = total.filter(|n| *n <= i64::MAX as u64) else {
            return Err(DeviceError::Grid(format!("{grid:?} has more than 2^63 programs")));
        };
        let words = words::Words::new(args);
        let reports = Reports::new(&self.module.meta.sites);
        let ctx =
            Ctx { grid: grid.map(|n| n as i32), flags: self.flags, report: Reports::receive, user: reports.as_user() };
        let call = Call { words: words.as_ptr(), ctx: &ctx };
        let scratch = self.module.meta.scratch_bytes as usize;
        let pool = self.shared.pool.as_ref().map_err(Clone::clone)?;
        pool.run_at(&self.pace, total, scratch, &|programs, scratch| {
            // SAFETY: words and context as the ABI says, alive until `run` returns; programs inside the grid; scratch of
            // the size the module asks for. That the arguments fit is this function's contract.
            unsafe { (self.module.entry)(call.words(), call.ctx(), programs.start, programs.end, scratch) }
        })?;
        reports.finish(grid, self.shared.on_print.as_ref())
    }
}

/// What all threads hand to the kernel.
struct Call<'a> {
    words: *const u64,
    ctx: &'a Ctx,
}

// SAFETY: both are only read; `Ctx::user` is a `Reports`, which is made for reports from several threads.
unsafe impl Sync for Call<'_> {}

impl Call<'_> {
    fn words(&self) -> *const u64 {
        self.words
    }
    fn ctx(&self) -> *const Ctx {
        self.ctx
    }
}
