//! A launch on the emulator. See [`tegula_ir::abi::gpu`] for how kernels are called.

use super::{
    super::{
        DeviceError, Program,
        report::{MOST_PRINTED, Reports},
    },
    Completion, Launched, Module, Shared,
    memory::{buffer, lend, restore, save},
};
use std::sync::Arc;
use tegula_ir::{abi::gpu, protocol::Site};
use tegula_lang::launch::ArgData;
use tegula_ptx::{Counters, Emulator, Fault, FaultKind, Grid, Options, Param};

/// A kernel that is ready to run.
pub(super) struct Compiled {
    pub name: String,
    pub params: Vec<String>,
    pub module: Arc<Module>,
    pub shared: Arc<Shared>,
}

impl Program for Compiled {
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        use tegula_ptx::Completion::{Early, Late};
        // Whether nothing was ever written to an argument, when somebody wants to know.
        let track = self.shared.emulator.strict.memory;
        let fresh: Vec<bool> = args.iter().map(|a| track && matches!(a, ArgData::View(v) if is_fresh(v))).collect();
        let reports = Reports::new(&self.module.meta.sites);
        // SAFETY: this function's contract: arguments that fit, which nobody else writes meanwhile.
        let done = unsafe {
            match self.shared.completion {
                Completion::Early => self.once(args, &fresh, grid, Early, Some(&reports)),
                Completion::Late => self.once(args, &fresh, grid, Late, Some(&reports)),
                Completion::Both => self.twice(args, &fresh, grid, &reports),
            }
        };
        for arg in args {
            if let ArgData::View(v) = arg
                && v.mutable
                && let Some(buffer) = buffer(v)
            {
                buffer.set_written(true);
            }
        }
        let counters = done.map_err(|fault| self.named(fault))?;
        if let Some(f) = &self.shared.on_launch {
            let (threads, shared_bytes) = (self.threads(), self.module.meta.shared_bytes);
            f(&Launched { kernel: &self.name, grid, threads, shared_bytes, counters });
        }
        reports.finish(grid, self.shared.on_print.as_ref())
    }
}

fn is_fresh(view: &tegula_lang::launch::ViewArg<'_>) -> bool {
    buffer(view).is_some_and(|b| !b.written())
}

impl Compiled {
    fn threads(&self) -> u32 {
        self.module.meta.warps * 32
    }

    /// A fault of this kernel, which in PTX has the name of all.
    fn named(&self, mut fault: Box<Fault>) -> DeviceError {
        fault.entry.clone_from(&self.name);
        DeviceError::Fault(fault)
    }

    /// Runs the grid.
    ///
    /// # Safety
    /// As for [`Program::run`].
    unsafe fn once(
        &self,
        args: &[ArgData<'_>],
        fresh: &[bool],
        grid: [u32; 3],
        completion: tegula_ptx::Completion,
        reports: Option<&Reports<'_>>,
    ) -> Result<Counters, Box<Fault>> {
        let mut gpu = Emulator::new(Options { completion, ..self.shared.emulator.clone() });
        // SAFETY: this function's contract; the emulator ends with this function.
        let mut params = unsafe { lend(&mut gpu.memory, args, &self.params, fresh) };
        let capacity = capacity(&self.module.meta.sites);
        let at = if capacity == 0 { 0 } else { report_buffer(&mut gpu, capacity)? };
        params.push(Param::U64(at));
        let shared = self.module.meta.shared_bytes as usize;
        let sizes = Grid { grid, block: [self.threads(), 1, 1], cluster: None, dynamic_shared: shared };
        let report = gpu.launch(&self.module.ptx, gpu::ENTRY, sizes, &params)?;
        if let Some(reports) = reports.filter(|_| at != 0) {
            collect(&gpu, at, capacity, reports)?;
        }
        Ok(report.counters)
    }

    /// Runs the grid with early and then with late completion, which must leave the same bits.
    ///
    /// # Safety
    /// As for [`Program::run`].
    unsafe fn twice(
        &self,
        args: &[ArgData<'_>],
        fresh: &[bool],
        grid: [u32; 3],
        reports: &Reports<'_>,
    ) -> Result<Counters, Box<Fault>> {
        use tegula_ptx::Completion::{Early, Late};
        // SAFETY: this function's contract.
        unsafe {
            let before = save(args);
            let counters = self.once(args, fresh, grid, Early, Some(reports))?;
            let early = save(args);
            restore(args, &before);
            self.once(args, fresh, grid, Late, None)?;
            let late = save(args);
            for (i, (e, l)) in early.iter().zip(&late).enumerate() {
                if let Some(at) = e.iter().zip(l).position(|(e, l)| e != l) {
                    let size = if let ArgData::View(v) = &args[i] { v.elem.bytes() } else { 1 };
                    let name = self.params.get(i).map_or("?", String::as_str);
                    let message = format!(
                        "element {} of `{name}` (in row-major order) depends on how soon asynchronous results arrive: a \
                         wait is missing",
                        at / size
                    );
                    return Err(Fault::new(FaultKind::Asynchronous, message));
                }
            }
            Ok(counters)
        }
    }
}

/// Reports that a launch may keep: none if the kernel has nothing to report.
fn capacity(sites: &[Site]) -> usize {
    if sites.is_empty() { 0 } else { MOST_PRINTED }
}

fn host(e: impl ToString) -> Box<Fault> {
    Fault::new(FaultKind::Launch, e.to_string())
}

/// An empty report buffer in device memory.
fn report_buffer(gpu: &mut Emulator, capacity: usize) -> Result<u64, Box<Fault>> {
    let mut head = [0; gpu::RECORDS];
    head[gpu::CAPACITY..][..4].copy_from_slice(&(capacity as u32).to_le_bytes());
    let at = gpu.memory.alloc("reports", gpu::RECORDS + capacity * gpu::RECORD);
    gpu.memory.write(at, &head).map_err(host)?;
    Ok(at)
}

/// Hands on what the kernel reported.
fn collect(gpu: &Emulator, at: u64, capacity: usize, reports: &Reports<'_>) -> Result<(), Box<Fault>> {
    let mut count = [0; 4];
    gpu.memory.read(at, &mut count).map_err(host)?;
    let count = u32::from_le_bytes(count) as usize;
    let kept = count.min(capacity);
    let records = gpu.memory.read_vec(at + gpu::RECORDS as u64, kept * gpu::RECORD).map_err(host)?;
    for record in records.chunks_exact(gpu::RECORD) {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|b| record[8 * i + b]));
        reports.add(word(0) as u32, word(1), word(2) as i64);
    }
    reports.lose((count - kept) as u64);
    Ok(())
}
