//! Compiling all kernels that a program needs, for several targets, into a bundle.

use super::{Builder, BuilderError, Kind, Machine, Recorded, Recorder};
use crate::{
    cache::{DiskCache, exact_key},
    compile::{CompileError, Compiler, OnProgress, Output, Program},
    device::{Device, DeviceError},
};
use std::{
    collections::BTreeSet,
    error::Error,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tegula_ir::protocol::{Emit, Request};

/// How a bundle is made.
pub struct MakeOptions {
    /// The compiler program.
    pub compiler: Program,
    /// At most so many compiler processes. Without: one for each CPU.
    pub compilers: Option<usize>,
    /// Longest time that compiling one kernel may take.
    pub compile_timeout: Duration,
    /// Where artifacts are kept for the next bundle.
    pub cache: DiskCache,
    /// Told about compilations, for progress bars.
    pub on_progress: Option<OnProgress>,
}

impl Default for MakeOptions {
    fn default() -> MakeOptions {
        MakeOptions {
            compiler: Program::new(),
            compilers: None,
            compile_timeout: Duration::from_secs(600),
            cache: DiskCache::of_user(),
            on_progress: None,
        }
    }
}

/// A bundle, and what its maker should know.
#[derive(Debug)]
pub struct Made {
    /// The bundle, to be written.
    pub builder: Builder,
    /// There is no ptxas: the bundle has no cubins for the GPUs that were asked for.
    pub no_cubins: bool,
}

/// Why there is no bundle.
#[derive(thiserror::Error)]
pub enum MakeError {
    /// Not a target, or the compiler failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What launches the kernels failed.
    #[error("while noting the kernels for {target}: {source}")]
    Launches {
        /// The target.
        target: String,
        /// What it says.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The kernels do not make a bundle.
    #[error(transparent)]
    Builder(#[from] BuilderError),
}

crate::readable_debug!(MakeError);

impl From<CompileError> for MakeError {
    fn from(e: CompileError) -> MakeError {
        DeviceError::from(e).into()
    }
}

/// Every GPU since Ampere can translate its PTX.
const COMMON: &str = "sm_80";

/// Makes a bundle for targets (`cpu:x86-64-v3`, `sm_90a`). `launches` is called once for each of them with a device that
/// computes nothing and notes every kernel that is launched on it, or loaded: see [`Recorder`]. For GPUs the bundle gets PTX,
/// and cubins where NVIDIA's ptxas is installed; and once there is any GPU among the targets, PTX for `sm_80`, which every
/// later one can run.
///
/// # Errors
/// Of `launches`; of the compiler, which must be there.
pub fn make<E: Into<Box<dyn Error + Send + Sync>>>(
    targets: &[impl AsRef<str>],
    options: MakeOptions,
    mut launches: impl FnMut(&Device) -> Result<(), E>,
) -> Result<Made, MakeError> {
    let targets: BTreeSet<&str> = targets.iter().map(AsRef::as_ref).collect();
    let common = targets.iter().any(|t| t.starts_with("sm_")).then_some(COMMON);
    let mut jobs = vec![];
    for target in targets.iter().copied().chain(common.filter(|c| !targets.contains(c))) {
        let recorder = Recorder::new(target)?;
        let failed = |e: E| MakeError::Launches { target: target.into(), source: e.into() };
        launches(&recorder.device()).map_err(failed)?;
        let gpu = matches!(Machine::of_target(target), Ok(Machine::Gpu { .. }));
        let kinds: &[Kind] = match gpu {
            false => &[Kind::SharedObject],
            true if targets.contains(target) => &[Kind::Ptx, Kind::Cubin],
            true => &[Kind::Ptx],
        };
        for recorded in recorder.kernels() {
            jobs.extend(kinds.iter().map(|kind| Job {
                recorded: recorded.clone(),
                target: target.into(),
                kind: *kind,
            }));
        }
    }
    compile(jobs, options)
}

/// One artifact to be made.
struct Job {
    recorded: Recorded,
    target: String,
    kind: Kind,
}

fn compile(jobs: Vec<Job>, options: MakeOptions) -> Result<Made, MakeError> {
    let MakeOptions { compiler, compilers, compile_timeout, cache, on_progress } = options;
    let identity = compiler.identity(&cache)?.0.clone();
    // Equal IR of another line of the source is another artifact here, so that the bundle's bytes do not depend on what
    // was compiled before.
    let ptxas = if jobs.iter().any(|j| j.kind == Kind::Cubin) { compiler.ptxas()? } else { None };
    let made_by = |kind| match (kind, &ptxas) {
        (Kind::Cubin, Some(ptxas)) => format!("{identity}, {ptxas}"),
        _ => identity.clone(),
    };
    let cpus = || std::thread::available_parallelism().map_or(1, |n| n.get());
    let limit = compilers.unwrap_or_else(cpus);
    let mut compiler = Compiler::new(compiler, limit, compile_timeout);
    if let Some(f) = on_progress {
        compiler = compiler.on_progress(f);
    }
    let no_cubins = ptxas.is_none() && jobs.iter().any(|j| j.kind == Kind::Cubin);

    let builder = Mutex::new(Builder::new(&identity));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let work = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Relaxed)) {
            if job.kind == Kind::Cubin && ptxas.is_none() {
                continue;
            }
            let made = job.output(&compiler, &cache, &made_by(job.kind)).and_then(|output| {
                let mut builder = builder.lock().unwrap_or_else(PoisonError::into_inner);
                let Recorded { kernel, checked } = &job.recorded;
                Ok(builder.add(kernel, *checked, &job.target, job.kind, output.bytes, output.meta)?)
            });
            if let Err(e) = made {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                // The others need not go on.
                next.store(jobs.len(), Relaxed);
            }
        }
    };
    std::thread::scope(|s| (0..limit.min(jobs.len())).for_each(|_| drop(s.spawn(work))));
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(Made { builder: builder.into_inner().unwrap_or_else(PoisonError::into_inner), no_cubins }),
    }
}

impl Job {
    /// From the cache, or compiled.
    fn output(&self, compiler: &Compiler, cache: &DiskCache, made_by: &str) -> Result<Output, MakeError> {
        let Recorded { kernel, checked } = &self.recorded;
        let emit = if self.kind == Kind::Cubin { Emit::Cubin } else { Emit::Artifact };
        let request = Request { kernel: kernel.text(), target: self.target.clone(), emit, checked: *checked };
        let key = exact_key(&request, made_by);
        if let Some(entry) = cache.load(key)
            && let Ok(bytes) = entry.artifact()
        {
            return Ok(Output { bytes, meta: entry.meta });
        }
        let output = compiler.compile(&kernel.name, &request)?;
        cache.store(key, &output.bytes, &output.meta);
        Ok(output)
    }
}
