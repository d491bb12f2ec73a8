//! Compiled kernels: found in this process, in the program's bundle, on disk, or compiled, in this order. What a target
//! makes of an artifact (a loaded library, a parsed program) is its own affair.

use super::{DeviceError, cuda::CudaError};
use crate::{
    bundle::{Bundle, BundleError, Found, Machine, Missing, Shipped},
    cache::{DiskCache, Entry, artifact_key, kernel_key},
    compile::{CompileError, Compiler, OnProgress, Program},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tegula_ir::{
    Kernel,
    protocol::{Emit, Meta, NO_TOOL, Request},
};

/// An artifact: what the compiler made, and where it is.
pub(super) enum Artifact {
    /// In the cache.
    Kept(Entry),
    /// In memory only.
    Loose(Vec<u8>, Meta),
    /// From a bundle.
    Bundled(Found),
}

/// The modules of a device, each an `M`.
pub(super) struct Modules<M> {
    /// Or why it cannot be used, which every kernel tells.
    bundle: Result<Option<Bundle>, BundleError>,
    cache: DiskCache,
    compiler: Compiler,
    /// By kernel key and target. The inner lock is held while one is compiled: whoever wants the same waits.
    loaded: Mutex<HashMap<(u128, String), Arc<Mutex<Option<Arc<M>>>>>>,
}

impl<M> Modules<M> {
    /// Takes what `shipped` has; compiles the rest with `program`, in at most `compilers` processes (without: one for each CPU), each kernel in at most
    /// `timeout`.
    pub fn new(
        shipped: Shipped,
        cache: DiskCache,
        program: Program,
        compilers: Option<usize>,
        timeout: Duration,
        on_progress: Option<OnProgress>,
    ) -> Modules<M> {
        let cpus = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let mut compiler = Compiler::new(program, compilers.unwrap_or_else(cpus), timeout);
        if let Some(f) = on_progress {
            compiler = compiler.on_progress(f);
        }
        Modules { bundle: shipped.bundle(), cache, compiler, loaded: Mutex::default() }
    }

    /// So many kernels may be compiled at the same time with profit.
    pub fn parallelism(&self) -> usize {
        self.compiler.limit()
    }

    /// The module of a kernel for a machine; `open` makes it of an artifact. An artifact from disk that does not open is
    /// compiled again.
    pub fn get(
        &self,
        kernel: &Kernel,
        machine: &Machine,
        checked: bool,
        open: impl Fn(Artifact) -> Result<M, DeviceError>,
    ) -> Result<Arc<M>, DeviceError> {
        let key = kernel_key(kernel, checked);
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = loaded.entry((key, machine.target())).or_default().clone();
        drop(loaded);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = &*slot {
            return Ok(module.clone());
        }
        let bundle = self.bundle.as_ref().map_err(BundleError::clone)?.as_ref();
        let bundled = bundle.map(|b| from_bundle(b, key, machine, &open)).transpose()?.flatten();
        let module = match bundled {
            Some(module) => module,
            None => self.make(kernel, machine, checked, open).map_err(|e| match (e, bundle) {
                (DeviceError::Compile(e), Some(bundle)) if matches!(*e, CompileError::NotFound { .. }) => {
                    Box::new(Missing::of(kernel, checked, machine, bundle)).into()
                }
                (e, _) => e,
            })?,
        };
        let module = Arc::new(module);
        *slot = Some(module.clone());
        Ok(module)
    }

    /// From disk, or compiled. Where machine code runs, that is what is wanted, if NVIDIA's assembler is at hand.
    fn make(
        &self,
        kernel: &Kernel,
        machine: &Machine,
        checked: bool,
        open: impl Fn(Artifact) -> Result<M, DeviceError>,
    ) -> Result<M, DeviceError> {
        let identity = self.compiler.program().identity(&self.cache)?;
        let cubins = machine.makes_cubins();
        let wanted = [Emit::Cubin, Emit::Artifact].into_iter().filter(|e| cubins || *e == Emit::Artifact);
        let wanted = wanted.map(|emit| {
            let target = machine.target();
            let key = if emit == Emit::Cubin { format!("{target} cubin") } else { target.clone() };
            (artifact_key(kernel, &key, checked, identity), target, emit)
        });
        for (key, ..) in wanted.clone() {
            match self.cache.load(key).map(|entry| open(Artifact::Kept(entry))) {
                Some(Ok(module)) => return Ok(module),
                // Not broken, but refused by the driver.
                Some(Err(e @ DeviceError::Cuda { .. })) => return Err(e),
                Some(Err(e)) => tracing::warn!("{e}; compiling it again"),
                None => {}
            }
        }
        for (key, target, emit) in wanted {
            match self.compile(key, kernel, &target, emit, checked) {
                Err(DeviceError::Compile(e)) if emit == Emit::Cubin && is_no_assembler(&e) => {}
                made => return open(made?),
            }
        }
        // Not reached: an artifact is always wanted, and its outcome returned.
        Err(DeviceError::Unsupported(format!("{machine} takes no code")))
    }

    fn compile(
        &self,
        key: u128,
        kernel: &Kernel,
        target: &str,
        emit: Emit,
        checked: bool,
    ) -> Result<Artifact, DeviceError> {
        let request = Request { kernel: kernel.text(), target: target.into(), emit, checked };
        let output = self.compiler.compile(&kernel.name, &request)?;
        for remark in &output.meta.remarks {
            tracing::debug!("kernel `{}`: {remark}", kernel.name);
        }
        // Another process may have put its own there by now, which is as good.
        let kept = self.cache.store(key, &output.bytes, &output.meta);
        Ok(kept.map_or(Artifact::Loose(output.bytes, output.meta), Artifact::Kept))
    }
}

/// The best module of a bundle that opens. A driver may refuse code, for it is older than the compiler; the next best may
/// do.
fn from_bundle<M>(
    bundle: &Bundle,
    key: u128,
    machine: &Machine,
    open: impl Fn(Artifact) -> Result<M, DeviceError>,
) -> Result<Option<M>, DeviceError> {
    let mut refused = None;
    for found in bundle.all_of_key(key, machine) {
        let found = found?;
        let what = format!("{} for {}", found.kind.name(), found.target);
        match open(Artifact::Bundled(found)) {
            Err(e @ DeviceError::Cuda { error: CudaError::Load { .. }, .. }) => {
                tracing::warn!("{what} of bundle {}: {e}", bundle.name());
                refused.get_or_insert(e);
            }
            opened => return opened.map(Some),
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Whether the compiler misses NVIDIA's assembler.
fn is_no_assembler(error: &CompileError) -> bool {
    matches!(error, CompileError::Rejected { message, .. } if message.starts_with(NO_TOOL))
}
