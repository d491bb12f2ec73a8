//! PTX on the emulator.

use super::{Arg, Failure, Job, Level, Raw};
use tegula_ptx::{Emulator, Grid, Module, Options, Param};

/// The emulator as one of the architectures.
#[derive(Debug)]
pub struct EmulatedRaw {
    arch: &'static str,
    options: Options,
}

impl EmulatedRaw {
    /// `sm_80` or `sm_90a`, so run.
    pub fn new(arch: &'static str, options: Options) -> EmulatedRaw {
        EmulatedRaw { arch, options }
    }
}

impl Raw for EmulatedRaw {
    fn name(&self) -> String {
        format!("emulated:{}", self.arch)
    }

    fn supports(&self, level: Level) -> bool {
        self.arch == "sm_90a" || level == Level::Sm80
    }

    fn run(&mut self, job: &Job) -> Result<Vec<u8>, Failure> {
        let module = Module::parse(&job.ptx, self.arch).map_err(Failure::plain)?;
        let mut emulator = Emulator::new(self.options.clone());
        let memory = &mut emulator.memory;
        let addresses: Vec<u64> = job
            .args
            .iter()
            .map(|arg| match arg {
                Arg::In(bytes) | Arg::InOut(bytes) => memory.alloc_with("argument", bytes),
                Arg::Out(n) => memory.alloc_with("result", &vec![0; *n]),
                Arg::Map(..) | Arg::U64(_) => 0,
            })
            .collect();
        let mut params = vec![];
        for (arg, address) in job.args.iter().zip(&addresses) {
            params.push(match arg {
                Arg::Map(map, of) => {
                    let map = tegula_ptx::TensorMap { address: addresses[*of], ..(**map).clone() };
                    Param::Bytes(map.encode().map_err(Failure::plain)?.to_vec())
                }
                Arg::U64(n) => Param::U64(*n),
                _ => Param::U64(*address),
            });
        }
        let sizes =
            Grid { grid: job.grid, block: job.block, cluster: job.cluster, dynamic_shared: job.shared as usize };
        emulator.launch(&module, "k", sizes, &params).map_err(Failure::plain)?;
        let mut out = Vec::with_capacity(job.result_bytes());
        for (arg, address) in job.args.iter().zip(&addresses) {
            let n = match arg {
                Arg::Out(n) => *n,
                Arg::InOut(bytes) => bytes.len(),
                _ => continue,
            };
            out.extend(emulator.memory.read_vec(*address, n).map_err(Failure::plain)?);
        }
        Ok(out)
    }
}
