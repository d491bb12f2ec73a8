//! An emulated GPU: kernels become PTX, compiled by `tegulac` and cached on disk, and [`tegula_ptx`] executes it on the
//! host's cores, checks every access, and counts. Slow; for tests, and for GPU code on machines without one.
//!
//! - `arch`: which GPUs;
//! - `memory`: arguments as the device sees them: the tensors' own bytes, at made-up addresses;
//! - `launch`: one launch: parameters, report buffer, faults.

mod arch;
mod launch;
pub(super) mod memory;

pub use arch::Arch;

use super::{
    DeviceError, Printer, Program, Target,
    modules::{Artifact, Modules},
};
use crate::{
    bundle::{Machine, Shipped},
    cache::DiskCache,
    compile::{OnProgress, Program as CompilerProgram},
};
use launch::Compiled;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tegula_ir::{Kernel, layout::Layout, protocol::Meta};
use tegula_ptx::Counters;

/// When asynchronous copies and matrix products arrive: a device may take its time, and a kernel must be right anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// As soon as they may.
    Early,
    /// As late as they may.
    Late,
    /// Every launch runs twice, and it is an error when bits differ.
    Both,
}

/// What a launch did.
#[derive(Clone, Debug)]
pub struct Launched<'a> {
    /// The kernel.
    pub kernel: &'a str,
    /// Programs along each axis.
    pub grid: [u32; 3],
    /// Threads of a program.
    pub threads: u32,
    /// Dynamic shared memory of a program, in bytes.
    pub shared_bytes: u64,
    /// Instructions, sectors, bank conflicts, tensor-core work. Sectors and conflicts are counted in strict mode.
    pub counters: Counters,
}

/// Told about every launch, when it has ended.
pub type OnLaunch = Arc<dyn Fn(&Launched<'_>) + Send + Sync>;

/// How a GPU is emulated.
pub struct EmulatedOptions {
    /// Report misaligned accesses, reads of what nothing wrote, races in shared memory and missing fences, and count
    /// traffic. Accesses out of bounds are always reported.
    pub strict: bool,
    /// When asynchronous results arrive.
    pub completion: Completion,
    /// Host threads; 0 for as many as there are cores.
    pub threads: usize,
    /// Warp instructions that one program may execute before it counts as hung.
    pub limit: u64,
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
    /// Told what each launch did.
    pub on_launch: Option<OnLaunch>,
}

impl Default for EmulatedOptions {
    /// Strict, early completion, all cores.
    fn default() -> EmulatedOptions {
        EmulatedOptions {
            strict: true,
            completion: Completion::Early,
            threads: 0,
            limit: 10_000_000_000,
            bundle: Shipped::OfProgram,
            cache: DiskCache::of_user(),
            compiler: CompilerProgram::new(),
            compilers: None,
            compile_timeout: Duration::from_secs(180),
            on_progress: None,
            on_print: None,
            on_launch: None,
        }
    }
}

/// An emulated GPU as a target.
pub struct Emulated {
    arch: Arch,
    modules: Modules<Module>,
    shared: Arc<Shared>,
}

/// What programs need to run.
struct Shared {
    emulator: tegula_ptx::Options,
    completion: Completion,
    on_print: Option<Printer>,
    on_launch: Option<OnLaunch>,
}

/// A kernel's PTX, parsed.
struct Module {
    ptx: tegula_ptx::Module,
    meta: Meta,
}

impl Emulated {
    /// The GPU of that architecture.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn new(arch: &str, options: EmulatedOptions) -> Result<Emulated, DeviceError> {
        let Some(arch) = Arch::from_name(arch) else {
            let all: Vec<_> = Arch::ALL.iter().map(|a| a.name()).collect();
            let problem = format!("no GPU `{arch}` is emulated: expected one of {}", all.join(", "));
            return Err(DeviceError::Unsupported(problem));
        };
        let EmulatedOptions { strict, completion, threads, limit, on_print, on_launch, .. } = options;
        let base = if strict { tegula_ptx::Options::default() } else { tegula_ptx::Options::fast() };
        let emulator = tegula_ptx::Options { threads, limit, max_shared: arch.shared_bytes(), ..base };
        let EmulatedOptions { bundle, cache, compiler, compilers, compile_timeout, on_progress, .. } = options;
        Ok(Emulated {
            arch,
            modules: Modules::new(bundle, cache, compiler, compilers, compile_timeout, on_progress),
            shared: Arc::new(Shared { emulator, completion, on_print, on_launch }),
        })
    }
}

impl Target for Emulated {
    fn name(&self) -> String {
        format!("emulated:{}", self.arch.name())
    }

    fn compiles_for(&self) -> String {
        self.arch.name().into()
    }

    fn layout(&self) -> Layout {
        Layout::Gguf
    }

    fn load(&self, kernel: &Kernel, checked: bool) -> Result<Arc<dyn Program>, DeviceError> {
        let machine = Machine::Gpu {
            name: self.name(),
            target: self.arch.name().into(),
            capability: self.arch.capability(),
            cubins: false,
        };
        let module = self.modules.get(kernel, &machine, checked, |artifact| Module::open(artifact, self.arch))?;
        let (name, params) = (kernel.name.clone(), kernel.params.clone());
        Ok(Arc::new(Compiled { name, params, module, shared: self.shared.clone() }))
    }

    fn load_parallelism(&self) -> usize {
        self.modules.parallelism()
    }
}

impl Module {
    fn open(artifact: Artifact, arch: Arch) -> Result<Module, DeviceError> {
        let (file, bytes, meta) = match artifact {
            Artifact::Kept(entry) => (entry.path.clone(), entry.artifact(), entry.meta),
            Artifact::Loose(bytes, meta) => (PathBuf::from("(memory)"), Ok(bytes), meta),
            Artifact::Bundled(found) => (PathBuf::from("(bundle)"), Ok(found.bytes), found.meta),
        };
        let failed = |why: String| DeviceError::Load { file: file.clone(), why };
        let text = String::from_utf8(bytes.map_err(|e| failed(e.to_string()))?).map_err(|e| failed(e.to_string()))?;
        let ptx = tegula_ptx::Module::parse(&text, arch.name()).map_err(|e| failed(e.to_string()))?;
        Ok(Module { ptx, meta })
    }
}
