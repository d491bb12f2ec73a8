//! A launch. See [`tegula_ir::abi::gpu`] for how kernels are called.

use super::{
    super::{CudaError, Shape},
    Shared,
    block::Block,
    code::Code,
    host_args::HostArgs,
    queue::Queue,
    uses::Uses,
};
use crate::{
    device::{DeviceError, Printer, Program, place},
    memory::Buffer,
};
use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr,
    sync::{Arc, PoisonError},
};
use tegula_lang::launch::{ArgData, MAX_PARAMS, MAX_RANK};

/// Most blocks along the second and third axis of a grid.
const MOST_BLOCKS: u32 = 65_535;

/// A kernel that is ready to run.
pub(super) struct Compiled {
    pub code: Arc<Code>,
    pub shared: Arc<Shared>,
    /// Where prints go.
    pub on_print: Option<Printer>,
}

impl Program for Compiled {
    unsafe fn run(&self, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        // SAFETY: this function's contract.
        unsafe { self.run_on(None, args, grid) }
    }

    unsafe fn run_on(
        &self,
        queue: Option<&Arc<Queue>>,
        args: &[ArgData<'_>],
        grid: [u32; 3],
    ) -> Result<(), DeviceError> {
        let queue = queue.unwrap_or(&self.shared.main);
        let Compiled { code, shared, .. } = self;
        if grid[1].max(grid[2]) > MOST_BLOCKS {
            let problem =
                format!("expected at most {MOST_BLOCKS} programs along the second and third axis, found {grid:?}");
            return Err(DeviceError::Grid(problem));
        }
        let here = args.iter().all(|a| place::buffer(a).is_some_and(|b| self.block(b).is_some()) || is_scalar(a));
        if here && code.meta.sites.is_empty() {
            // SAFETY: this function's contract; the arguments are on this GPU.
            return unsafe { self.put(queue, args, grid, None, 0) }.map_err(|e| shared.error(e));
        }
        // As it stays: no other thread records for this one.
        if shared.order.enter(queue).recordings.has(queue) {
            return Err(shared.error(self.not_recordable(args)));
        }
        // SAFETY: this function's contract.
        unsafe { self.run_and_wait(queue, args, grid) }
    }
}

fn is_scalar(arg: &ArgData<'_>) -> bool {
    matches!(arg, ArgData::Scalar { .. })
}

impl Compiled {
    /// The block of a buffer, if it is on this GPU.
    fn block<'b>(&self, buffer: &'b Buffer) -> Option<&'b Block> {
        buffer.remote()?.downcast::<Block>().filter(|b| Arc::ptr_eq(&b.shared, &self.shared))
    }

    /// Puts the launch into a queue, after the work that it must follow, or records it. `host`: addresses on the GPU of
    /// arguments that are the host's; they are copied in the main queue, which comes before the launch, and after it.
    ///
    /// # Safety
    /// As for [`Program::run`].
    unsafe fn put(
        &self,
        queue: &Arc<Queue>,
        args: &[ArgData<'_>],
        grid: [u32; 3],
        host: Option<&HostArgs>,
        reports: u64,
    ) -> Result<(), CudaError> {
        let Compiled { code, shared, .. } = self;
        let mut params = Params::new();
        // Held until the launch is in the stream.
        let mut uses = shared.order.enter(queue);
        let recorded = uses.recorded(queue).map(|r| r.code.push(code.clone())).is_some();
        for (i, arg) in args.iter().enumerate() {
            let on_host = host.and_then(|h| h.address(i));
            match arg {
                ArgData::Scalar { bits, .. } => params.push(*bits),
                ArgData::View(v) => {
                    self.order(&mut uses, queue, recorded, place::buffer(arg), v.mutable)?;
                    params.push(on_host.unwrap_or(v.ptr.addr() as u64));
                    let rank = v.rank as usize;
                    v.extents[..rank].iter().chain(&v.strides[..rank]).for_each(|n| params.push(*n as u64));
                }
                ArgData::Packed(p) => {
                    self.order(&mut uses, queue, recorded, place::buffer(arg), false)?;
                    params.push(on_host.unwrap_or(p.ptr.addr() as u64));
                    params.push(p.k as u64);
                    params.push(p.n as u64);
                }
            }
        }
        params.push(reports);
        let meta = &code.meta;
        let shape =
            Shape { grid, block: [meta.warps * 32, 1, 1], cluster: None, shared_bytes: meta.shared_bytes as u32 };
        let main = Some(&shared.main).filter(|m| host.is_some() && !Arc::ptr_eq(m, queue));
        main.map_or(Ok(()), |main| uses.recordings.wait(queue, main))?;
        // SAFETY: parameters as the ABI says; that they fit, and that memory may be used so, is this function's contract
        // and what `order` sees to.
        unsafe { params.with(|params| code.function.launch(&queue.stream, &shape, params))? };
        if !recorded {
            shared.order.recent().add(queue, &code.name);
        }
        main.map_or(Ok(()), |main| uses.recordings.wait(main, queue))
    }

    /// Lets the launch follow other work on a buffer; notes it when the launch is recorded.
    fn order(
        &self,
        uses: &mut Uses,
        queue: &Arc<Queue>,
        recorded: bool,
        buffer: Option<&Arc<Buffer>>,
        mutable: bool,
    ) -> Result<(), CudaError> {
        let Some(buffer) = buffer else { return Ok(()) };
        if mutable {
            buffer.set_written(true);
        }
        let Some(block) = self.block(buffer) else { return Ok(()) };
        if recorded {
            uses.recorded(queue).into_iter().for_each(|r| r.buffers.push((buffer.clone(), mutable)));
            return Ok(());
        }
        if mutable { uses.write(block.slot, queue) } else { uses.read(block.slot, queue) }
    }

    /// Why a launch that must be waited for cannot be recorded.
    fn not_recordable(&self, args: &[ArgData<'_>]) -> CudaError {
        let on_gpu = |a: &ArgData<'_>| is_scalar(a) || place::buffer(a).is_some_and(|b| self.block(b).is_some());
        CudaError::Usage(match args.iter().position(|a| !on_gpu(a)) {
            Some(i) => format!(
                "argument {i} does not lie in this GPU's memory, and the launch is recorded: copy it there first"
            ),
            None => "a kernel that prints or checks cannot be recorded: its reports are read after each launch".into(),
        })
    }

    /// Runs the grid, waits for it, and takes home what it wrote for the host.
    ///
    /// # Safety
    /// As for [`Program::run`].
    unsafe fn run_and_wait(&self, queue: &Arc<Queue>, args: &[ArgData<'_>], grid: [u32; 3]) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let elsewhere = args.iter().filter_map(place::buffer).find(|b| b.remote().is_some() && self.block(b).is_none());
        if let Some(remote) = elsewhere.and_then(|b| b.remote()) {
            let (here, there) = (shared.place(), remote.memory().place());
            let problem = format!("expected tensors of {here} (or of the host), found one in the memory of {there}");
            return Err(shared.error(CudaError::Usage(problem)));
        }
        let failed = |e| shared.error(e);
        let (sites, main) = (&self.code.meta.sites, &shared.main);
        // Copies go through the main queue, which nobody records.
        // SAFETY: this function's contract: the host's arguments are valid as long as they are borrowed.
        let host = unsafe { HostArgs::copy_in(&main.stream, args) }.map_err(failed)?;
        let run = |reports: u64| -> Result<(), CudaError> {
            // SAFETY: this function's contract; the kernel is done when its results are copied.
            unsafe {
                self.put(queue, args, grid, Some(&host), reports)?;
                main.synchronize()?;
                host.copy_out(&main.stream, args)
            }
        };
        if sites.is_empty() {
            return run(0).map_err(failed);
        }
        let mut reports = shared.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let to = reports.prepare(&main.stream).map_err(failed)?;
        run(to).map_err(failed)?;
        let collected = reports.collect(&main.stream, sites).map_err(failed)?;
        // Whoever hears the prints may launch something himself.
        drop(reports);
        collected.finish(grid, self.on_print.as_ref())
    }
}

/// Most words of a launch of the language: its arguments' and the report buffer.
const MOST: usize = MAX_PARAMS * (1 + 2 * MAX_RANK) + 1;

/// The parameters of a launch: words on the stack, for any launch of the language.
struct Params {
    words: [MaybeUninit<u64>; MOST],
    len: usize,
    /// Instead, for kernels given as IR, which may have more.
    heap: Vec<u64>,
}

impl Params {
    fn new() -> Params {
        Params { words: [MaybeUninit::uninit(); MOST], len: 0, heap: vec![] }
    }

    fn push(&mut self, word: u64) {
        if self.len < MOST {
            self.words[self.len].write(word);
        } else {
            if self.heap.is_empty() {
                // SAFETY: all of them were written.
                self.heap.extend(self.words.iter().map(|w| unsafe { w.assume_init() }));
            }
            self.heap.push(word);
        }
        self.len += 1;
    }

    /// Calls `f` with a pointer to each word.
    fn with<R>(&mut self, f: impl FnOnce(&mut [*mut c_void]) -> R) -> R {
        if !self.heap.is_empty() {
            let mut pointers: Vec<_> = self.heap.iter_mut().map(|w| ptr::from_mut(w).cast()).collect();
            return f(&mut pointers);
        }
        let mut pointers = [ptr::null_mut(); MOST];
        for (pointer, word) in pointers.iter_mut().zip(&mut self.words[..self.len]) {
            *pointer = word.as_mut_ptr().cast();
        }
        f(&mut pointers[..self.len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_order_on_the_stack_and_beyond_it() {
        for n in [0, 1, MOST - 1, MOST, MOST + 1, 3 * MOST] {
            let mut params = Params::new();
            (0..n).for_each(|i| params.push(7 * i as u64 + 1));
            // SAFETY: pointers to words.
            let read: Vec<u64> = params.with(|p| p.iter().map(|p| unsafe { *p.cast::<u64>() }).collect());
            assert_eq!(read, (0..n).map(|i| 7 * i as u64 + 1).collect::<Vec<_>>(), "{n}");
        }
    }
}
