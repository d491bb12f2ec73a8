//! Devices by name, as command lines give them.

use super::{Arch, CpuOptions, CudaOptions, Device, DeviceError, EmulatedOptions, Level};
use crate::{compile::OnProgress, pool::PoolOptions};

/// What devices of any kind are told.
#[derive(Default)]
pub struct Settings {
    /// Host threads: those of the CPU, or those that emulate.
    pub pool: PoolOptions,
    /// Told about compilations.
    pub on_progress: Option<OnProgress>,
}

impl Device {
    /// The device of a name: `cpu`, `cpu:x86-64-v3` (an instruction set), `oracle`, `emulated:sm_80` (checks everything),
    /// `emulated:sm_80:fast` (checks bounds only), `cuda:0` (an NVIDIA GPU; `cuda` is the first).
    ///
    /// # Errors
    /// There is none of that name; the error lists those there are. A GPU that cannot be opened: why.
    pub fn named(name: &str, settings: Settings) -> Result<Device, DeviceError> {
        let unknown = || {
            DeviceError::Unsupported(format!("device: expected one of {}, cuda:N, found `{name}`", names().join(", ")))
        };
        let Settings { pool, on_progress } = settings;
        match name.split_once(':') {
            None if name == "cpu" => Ok(Device::cpu_with(CpuOptions { pool, on_progress, ..CpuOptions::default() })),
            None if name == "cuda" => Device::cuda_with(0, CudaOptions { on_progress, ..CudaOptions::default() }),
            Some(("cuda", ordinal)) => {
                let ordinal = ordinal.parse().map_err(|_| unknown())?;
                Device::cuda_with(ordinal, CudaOptions { on_progress, ..CudaOptions::default() })
            }
            None if name == "oracle" => Ok(Device::oracle()),
            Some(("cpu", level)) => {
                let level = Some(Level::from_name(level).ok_or_else(unknown)?);
                Ok(Device::cpu_with(CpuOptions { pool, level, on_progress, ..CpuOptions::default() }))
            }
            Some(("emulated", arch)) => {
                let (arch, strict) = arch.strip_suffix(":fast").map_or((arch, true), |arch| (arch, false));
                let arch = Arch::from_name(arch).ok_or_else(unknown)?;
                let threads = pool.threads;
                let options = EmulatedOptions { strict, threads, on_progress, ..EmulatedOptions::default() };
                Device::emulated_with(arch.name(), options)
            }
            _ => Err(unknown()),
        }
    }
}

/// The names of all devices that every machine has.
fn names() -> Vec<String> {
    let levels = Level::ALL.iter().map(|l| format!("cpu:{}", l.name()));
    let emulated = Arch::ALL.iter().flat_map(|a| ["", ":fast"].map(|fast| format!("emulated:{}{fast}", a.name())));
    ["cpu".to_string()].into_iter().chain(levels).chain(emulated).chain(["oracle".to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_device_and_others_are_errors_that_list_them() {
        for name in names() {
            let found = Device::named(&name, Settings::default()).unwrap_or_else(|e| panic!("{name}: {e}")).name();
            // A CPU without that instruction set has no level in its name.
            assert!(
                found.starts_with(&name[..3]) && (found == "cpu" || name == "cpu" || name.starts_with(&found)),
                "{found}"
            );
        }
        for wrong in [
            "gpu",
            "",
            "cpu:",
            "cpu:sse2",
            "emulated",
            "emulated:sm_70",
            "emulated:sm_80:quick",
            "emulated:fast",
            "cuda:",
            "cuda:x",
            "cuda:-1",
        ] {
            let error = Device::named(wrong, Settings::default()).unwrap_err().to_string();
            assert!(error.starts_with("device: expected one of cpu, cpu:x86-64-v3, "), "{error}");
            assert!(error.contains("emulated:sm_80, emulated:sm_80:fast, emulated:sm_90a"), "{error}");
            assert!(error.ends_with(&format!("found `{wrong}`")), "{error}");
        }
    }
}
