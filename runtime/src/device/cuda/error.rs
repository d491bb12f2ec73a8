//! What the CUDA driver refuses.

/// Why something could not be done on an NVIDIA GPU.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library is not there.
    #[error(
        "no CUDA driver: libcuda.so.1 is not found. It comes with NVIDIA's GPU driver (`nvidia-smi` shows whether that is \
         installed); in a container, start it with access to GPUs; elsewhere add its folder to LD_LIBRARY_PATH. Without a \
         GPU, `emulated:sm_90a` runs the same kernels"
    )]
    NoDriver,
    /// The library lacks a function.
    #[error(
        "the CUDA driver has no function `{0}`: it is older than CUDA 12.0, which is needed; update NVIDIA's driver"
    )]
    OldDriver(&'static str),
    /// There is no such device.
    #[error(
        "no device cuda:{ordinal}: the driver shows {count} GPUs{}",
        match count { 0 => " (is CUDA_VISIBLE_DEVICES empty?)".into(), n => format!(", cuda:0 to cuda:{}", n - 1) }
    )]
    NoDevice {
        /// What was asked for.
        ordinal: u32,
        /// Devices there are.
        count: u32,
    },
    /// A GPU that kernels are not compiled for.
    #[error(
        "cuda:{ordinal} ({name}) has compute capability {}.{}: kernels need 8.0 (A100) or later", .capability.0,
        .capability.1
    )]
    TooOld {
        /// The device.
        ordinal: u32,
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// A function of the driver failed.
    #[error("{call}: {what} ({name}, {code}){}", hint(*.code))]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's number for the error.
        code: u32,
        /// Its name: `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
        /// What the driver says.
        what: String,
    },
    /// Code that the driver does not take.
    #[error("the driver does not load the {kind}: {error}{}", if .log.is_empty() { String::new() } else { format!("\n{log}") })]
    Load {
        /// `PTX` or `cubin`.
        kind: &'static str,
        /// The driver's error.
        error: Box<CudaError>,
        /// What its compiler says.
        log: String,
    },
    /// Something asked for that cannot be.
    #[error("{0}")]
    Usage(String),
}

crate::readable_debug!(CudaError);

impl CudaError {
    /// The driver's number, if it is one of the driver's errors.
    pub fn code(&self) -> Option<u32> {
        match self {
            CudaError::Call { code, .. } => Some(*code),
            CudaError::Load { error, .. } => error.code(),
            _ => None,
        }
    }
}

/// What to do about errors that many meet.
fn hint(code: u32) -> &'static str {
    match code {
        2 => ". `nvidia-smi` shows who uses the memory",
        100 => ". Is CUDA_VISIBLE_DEVICES set to something else?",
        209 => ". The code is for another GPU",
        222 => ". The PTX is newer than the driver: update NVIDIA's driver",
        700 | 701 | 714..=719 => {
            ". A kernel that was launched before has failed; the device can be used again by a new process only. Launches \
             with `.checked()`, or the same on `emulated:sm_80`, say where"
        }
        802 | 803 => ". The kernel module and the driver's library do not fit: reboot, or install both anew",
        _ => "",
    }
}
