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
    /// A kernel that was launched before has failed: whatever is asked of the GPU tells that.
    #[error("an earlier launch has failed{}: {error}", among(.kernels))]
    Fault {
        /// Kernels that were launched since the last wait, at most the last eight, the latest first.
        kernels: Vec<String>,
        /// The driver's error.
        error: Box<CudaError>,
    },
    /// The library is there, but cannot be loaded.
    #[error("the CUDA driver cannot be loaded: {0}")]
    BrokenDriver(String),
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
            CudaError::Load { error, .. } | CudaError::Fault { error, .. } => error.code(),
            _ => None,
        }
    }

    /// Whether it is about a kernel that was launched before: from then on the driver refuses everything.
    pub(super) fn is_fault(&self) -> bool {
        self.code().is_some_and(is_fault)
    }
}

/// Errors of kernels that last.
fn is_fault(code: u32) -> bool {
    matches!(code, 700 | 702 | 710 | 714..=719 | 721)
}

/// Which launches may be meant.
fn among(kernels: &[String]) -> String {
    match kernels {
        [] => String::new(),
        [one] => format!(", that of `{one}`"),
        all => format!(", one of the last: `{}`", all.join("`, `")),
    }
}

/// What to do about errors that many meet.
fn hint(code: u32) -> &'static str {
    match code {
        2 => ". `nvidia-smi` shows who uses the memory",
        3 | 999 => {
            ". Does `nvidia-smi` work? If not, NVIDIA's kernel module has to be loaded anew; in a container, restart it"
        }
        34 => {
            ". This is the toolkit's libcuda.so for linking, not the driver's: take the toolkit's folder …/lib64/stubs out of \
             LD_LIBRARY_PATH"
        }
        35 => ". Update NVIDIA's driver",
        100 => ". Is CUDA_VISIBLE_DEVICES set to something else?",
        209 => ". The code is for another GPU",
        222 => ". The PTX is newer than the driver: update NVIDIA's driver",
        code if is_fault(code) => {
            ". A kernel that was launched before has failed; the device can be used again by a new process only. Launches \
             with `.checked()`, or the same on `emulated:sm_80`, say where"
        }
        802 | 803 => ". The kernel module and the driver's library do not fit: reboot, or install both anew",
        _ => "",
    }
}
