//! Code, and its launches.

use crate::{
    code::*,
    config::{Mode, config},
    device::{Device, Failure},
    stream::Work,
};
use std::{
    collections::HashMap,
    ffi::c_void,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use tegula_ptx::{
    Emulator, FaultKind, Grid, Options, Param,
    exec::{lanes::Tier, program::Program},
};

/// The newest PTX that it takes, as a driver of CUDA 13.0 does.
const NEWEST: (u32, u32) = (9, 0);
/// Dynamic shared memory that launches may have without asking.
const SHARED_BYTES: usize = 48 << 10;

/// Loaded code.
pub struct Module {
    ptx: tegula_ptx::Module,
    /// Handles of its functions, by name.
    pub functions: Mutex<HashMap<String, usize>>,
}

/// A kernel.
pub struct Function {
    module: Arc<Module>,
    name: String,
    program: Arc<Program>,
    pub shared_bytes: AtomicUsize,
}

/// Sizes of a launch, as the caller gives them.
pub struct Sizes {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub shared_bytes: usize,
}

impl Module {
    /// Code, or the error's number with the compiler's messages.
    pub fn load(image: &[u8]) -> Result<Module, (Code, String)> {
        if image.starts_with(b"\x7fELF") {
            return Err((INVALID_IMAGE, "the stub runs no machine code".into()));
        }
        let wrong = |what: String| (INVALID_PTX, what);
        let text = std::str::from_utf8(image).map_err(|e| wrong(e.to_string()))?;
        let ptx = tegula_ptx::Module::parse(text, &config().arch)
            .map_err(|e| wrong(format!("ptxas application ptx input, {e}")))?;
        let version = version(text);
        if version.is_some_and(|v| v > NEWEST) {
            let log = format!("Unsupported .version {version:?}; current version is {NEWEST:?}");
            return Err((UNSUPPORTED_PTX_VERSION, log));
        }
        match ptx.unknown().first() {
            Some(e) => Err(wrong(format!("ptxas application ptx input, {e}"))),
            None => Ok(Module { ptx, functions: Mutex::default() }),
        }
    }

    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, Code> {
        if !self.ptx.entries().any(|e| e == name) {
            return Err(NOT_FOUND);
        }
        let program = self.ptx.program(name, Tier::best()).map_err(|_| INVALID_PTX)?;
        Ok(Function { module: self.clone(), name: name.into(), program, shared_bytes: AtomicUsize::new(SHARED_BYTES) })
    }
}

/// The numbers after `.version`.
fn version(text: &str) -> Option<(u32, u32)> {
    let after = text.split_once(".version")?.1.split_whitespace().next()?;
    let (major, minor) = after.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Function {
    /// A number of `CUfunction_attribute`.
    pub fn attribute(&self, which: u32) -> Result<i32, Code> {
        Ok(match which {
            0 => self.program.limits.max_threads.unwrap_or(1024) as i32,
            1 => self.program.static_shared as i32,
            3 => self.program.local_bytes as i32,
            // Registers: nobody assigns any here.
            4 => self.program.limits.max_registers.unwrap_or(0) as i32,
            8 => self.shared_bytes.load(Relaxed) as i32,
            _ => return Err(INVALID_VALUE),
        })
    }

    /// Lets launches have so much dynamic shared memory.
    pub fn allow_shared(&self, bytes: usize) -> Result<(), Code> {
        if bytes + self.program.static_shared > config().shared_bytes {
            return Err(INVALID_VALUE);
        }
        self.shared_bytes.store(bytes, Relaxed);
        Ok(())
    }

    /// The work of a launch; the parameters are copied.
    ///
    /// # Safety
    /// `params` points to a pointer for each of the kernel's parameters, each to as many bytes as it says.
    pub unsafe fn launch(
        self: &Arc<Self>,
        device: &Arc<Device>,
        sizes: Sizes,
        params: *const *const c_void,
    ) -> Result<Work, Code> {
        let product = |v: [u32; 3]| v.iter().map(|n| u64::from(*n)).product::<u64>();
        let limits = &self.program.limits;
        let threads = product(sizes.block);
        let right = (1..=1024).contains(&threads)
            && product(sizes.grid) > 0
            && sizes.grid[1].max(sizes.grid[2]) <= 65535
            && limits.required_threads.is_none_or(|n| n == sizes.block)
            && limits.max_threads.is_none_or(|n| threads <= u64::from(n))
            && sizes.shared_bytes <= self.shared_bytes.load(Relaxed);
        if !right {
            return Err(INVALID_VALUE);
        }
        let cluster = sizes.cluster.or(limits.required_cluster);
        if cluster.is_some_and(|c| {
            config().capability.0 < 9
                || !(1..=8).contains(&product(c))
                || (0..3).any(|i| !sizes.grid[i].is_multiple_of(c[i]))
        }) {
            return Err(INVALID_CLUSTER_SIZE);
        }
        let mut values = vec![];
        for (i, param) in self.program.params.iter().enumerate() {
            // SAFETY: as the caller promises.
            let bytes = unsafe { std::slice::from_raw_parts((*params.add(i)).cast::<u8>(), param.bytes) };
            values.push(Param::Bytes(bytes.to_vec()));
        }
        let grid =
            Grid { grid: sizes.grid, block: sizes.block, cluster: sizes.cluster, dynamic_shared: sizes.shared_bytes };
        let (function, device) = (self.clone(), device.clone());
        Ok(Work::new(move || function.run(&device, grid, &values)))
    }

    fn run(&self, device: &Device, grid: Grid, params: &[Param]) -> Result<(), Failure> {
        let base = if config().mode == Mode::Strict { Options::default() } else { Options::fast() };
        let mut gpu = Emulator::new(Options { max_shared: config().shared_bytes, ..base });
        // Blocks live until the end of this function, even if a stream frees them meanwhile.
        let blocks = device.blocks();
        for block in &blocks {
            let name = format!("memory at {:#x}", block.address);
            // SAFETY: the block's bytes, which outlive the emulator.
            unsafe { gpu.memory.map_at(block.address, &name, block.ptr(), block.bytes) }
                .map_err(|e| Failure(LAUNCH_FAILED, e.to_string()))?;
        }
        match gpu.launch(&self.module.ptx, &self.name, grid, params) {
            Ok(report) => {
                print!("{}", report.output);
                Ok(())
            }
            Err(fault) => {
                let code = match fault.kind {
                    FaultKind::Bounds | FaultKind::ReadOnly => ILLEGAL_ADDRESS,
                    FaultKind::Alignment => MISALIGNED_ADDRESS,
                    FaultKind::Deadlock | FaultKind::Limit => LAUNCH_TIMEOUT,
                    _ => LAUNCH_FAILED,
                };
                Err(Failure(code, fault.to_string()))
            }
        }
    }
}
