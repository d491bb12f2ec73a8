//! Devices by name.

use crate::options::Sizes;
use serde_json::{Value, json};
use tegula::device::{Device, EmulatedOptions, Settings, cuda::Gpu};
use tegula_gpu::raw::{CudaRaw, EmulatedRaw, Raw};
use tegula_ptx::{Completion, Options};

/// A device that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// A GPU, by its number.
    Cuda(u32),
    /// The emulator as an architecture.
    Emulated(&'static str),
}

impl Chosen {
    /// `cuda:0`, `emulated:sm_80`, `emulated:sm_90a`.
    pub fn parse(name: &str) -> Result<Chosen, String> {
        let cuda = name.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        match name {
            "emulated:sm_80" => Ok(Chosen::Emulated("sm_80")),
            "emulated:sm_90a" => Ok(Chosen::Emulated("sm_90a")),
            _ => cuda
                .map(Chosen::Cuda)
                .ok_or_else(|| format!("--device: expected cuda:N, emulated:sm_80 or emulated:sm_90a, found {name}")),
        }
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Chosen::Cuda(n) => format!("cuda:{n}"),
            Chosen::Emulated(arch) => format!("emulated:{arch}"),
        }
    }

    /// Whether time on it is a GPU's.
    pub fn is_cuda(self) -> bool {
        matches!(self, Chosen::Cuda(_))
    }

    /// How large timings are where nobody says.
    pub fn usual_sizes(self) -> Sizes {
        if self.is_cuda() { Sizes::Real } else { Sizes::Small }
    }

    /// For PTX as it is. The emulator runs its quickest loops and lets asynchronous results come late: what it is compared
    /// with is as careful as it can be.
    pub fn raw(self) -> Result<Box<dyn Raw>, String> {
        Ok(match self {
            Chosen::Cuda(n) => Box::new(CudaRaw::open(n).map_err(|e| e.to_string())?),
            Chosen::Emulated(arch) => {
                let options = Options { completion: Completion::Late, ..Options::fast() };
                Box::new(EmulatedRaw::new(arch, options))
            }
        })
    }

    /// For kernels. The program's bundle is used, if it has one.
    pub fn device(self, strict: bool) -> Result<Device, String> {
        match self {
            Chosen::Cuda(_) => Device::named(&self.name(), Settings::default()).map_err(|e| e.to_string()),
            Chosen::Emulated(arch) => {
                let options = EmulatedOptions { strict, ..EmulatedOptions::default() };
                Device::emulated_with(arch, options).map_err(|e| e.to_string())
            }
        }
    }

    /// For the report.
    pub fn describe(self) -> Result<Value, String> {
        let Chosen::Cuda(n) = self else { return Ok(json!({ "name": self.name() })) };
        let gpu = Gpu::open(n).map_err(|e| e.to_string())?;
        let (major, minor) = gpu.capability();
        Ok(json!({
            "name": self.name(),
            "gpu": gpu.name(),
            "capability": format!("{major}.{minor}"),
            "multiprocessors": gpu.multiprocessors(),
            "memory_mib": gpu.memory_bytes() >> 20,
            "shared_bytes": gpu.shared_bytes(),
            "driver": Gpu::driver_version().map_err(|e| e.to_string())?,
        }))
    }
}

/// The folder of a GPU's tables: its architecture. The stub of a driver is none, and its tables are for tests alone.
pub fn arch(gpu: &Gpu) -> String {
    let stub = if gpu.name().contains("stub") { "stub_" } else { "" };
    match gpu.capability() {
        (9, 0) => format!("{stub}sm_90a"),
        (major, minor) => format!("{stub}sm_{major}{minor}"),
    }
}
