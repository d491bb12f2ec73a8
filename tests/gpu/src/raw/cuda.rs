//! PTX on a GPU.

use super::{Arg, Failure, Job, Level, Raw};
use std::{ffi::c_void, sync::Arc};
use tegula::device::cuda::{CudaError, EncodedMap, Gpu, Image, Memory, Module, Shape, Stream};
use tegula_ptx::TensorMap;

/// A GPU.
pub struct CudaRaw {
    gpu: Arc<Gpu>,
    stream: Arc<Stream>,
}

impl CudaRaw {
    /// The GPU of that number.
    ///
    /// # Errors
    /// There is none.
    pub fn open(ordinal: u32) -> Result<CudaRaw, CudaError> {
        let gpu = Gpu::open(ordinal)?;
        let stream = Arc::new(Stream::new(&gpu)?);
        Ok(CudaRaw { gpu, stream })
    }

    /// Runs a job; the error of what refuses the module is plain.
    fn attempt(&mut self, job: &Job) -> Result<Result<Vec<u8>, CudaError>, CudaError> {
        let module = match Module::load(&self.gpu, Image::Ptx(&job.ptx)) {
            Ok(module) => module,
            Err(e) => return Ok(Err(e)),
        };
        let function = module.function("k")?;
        if job.shared > 48 << 10 {
            function.allow_shared(job.shared)?;
        }
        let mut blocks = vec![];
        for arg in &job.args {
            blocks.push(match arg {
                Arg::In(bytes) | Arg::InOut(bytes) => {
                    let memory = Memory::new(&self.stream, bytes.len())?;
                    memory.write(&self.stream, 0, bytes)?;
                    Some(memory)
                }
                Arg::Out(n) => {
                    let memory = Memory::new(&self.stream, *n)?;
                    memory.fill(&self.stream, 0, 0, *n)?;
                    Some(memory)
                }
                Arg::Map(..) | Arg::U64(_) => None,
            });
        }
        // Parameters stay where they are until the launch has copied them.
        let mut numbers: Vec<u64> = vec![0; job.args.len()];
        let mut maps: Vec<EncodedMap> = vec![];
        for ((arg, block), number) in job.args.iter().zip(&blocks).zip(&mut numbers) {
            match (arg, block) {
                (Arg::U64(n), _) => *number = *n,
                (Arg::Map(map, of), _) => {
                    let address = blocks[*of].as_ref().map_or(0, Memory::address);
                    *number = maps.len() as u64;
                    maps.push(EncodedMap::new(&TensorMap { address, ..(**map).clone() })?);
                }
                (_, Some(memory)) => *number = memory.address(),
                _ => {}
            }
        }
        let mut params: Vec<*mut c_void> = vec![];
        for (arg, number) in job.args.iter().zip(&mut numbers) {
            params.push(match arg {
                Arg::Map(..) => (&raw mut maps[*number as usize]).cast(),
                _ => (&raw mut *number).cast(),
            });
        }
        let shape = Shape { grid: job.grid, block: job.block, cluster: job.cluster, shared_bytes: job.shared };
        // SAFETY: the jobs' kernels take what their jobs say; they touch the memory that is allocated here alone.
        unsafe { function.launch(&self.stream, &shape, &mut params)? };
        let mut out = vec![0; job.result_bytes()];
        let mut at = 0;
        for (arg, block) in job.args.iter().zip(&blocks) {
            if let (Arg::Out(_) | Arg::InOut(_), Some(memory)) = (arg, block) {
                memory.read(&self.stream, 0, &mut out[at..at + memory.bytes()])?;
                at += memory.bytes();
            }
        }
        self.stream.synchronize()?;
        Ok(Ok(out))
    }
}

impl Raw for CudaRaw {
    fn name(&self) -> String {
        self.gpu.name().into()
    }

    fn supports(&self, level: Level) -> bool {
        let (major, minor) = self.gpu.capability();
        match level {
            Level::Sm80 => major >= 8,
            Level::Sm86 => (major, minor) >= (8, 6),
            Level::Sm89 => (major, minor) >= (8, 9),
            Level::Sm90 => major >= 9,
            Level::Sm90a => (major, minor) == (9, 0),
        }
    }

    fn run(&mut self, job: &Job) -> Result<Vec<u8>, Failure> {
        match self.attempt(job) {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(refused)) => Err(Failure::plain(refused)),
            // A kernel that fails takes the process's use of the GPU with it.
            Err(e) => Err(Failure { message: e.to_string(), fatal: true }),
        }
    }
}
