//! The driver's library.

use super::CudaError;
use cudarc::driver::sys;
use std::{ffi::CStr, ptr, sync::OnceLock};

/// Everything that is called: cudarc looks functions up when they are first called, and panics at those it misses.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernelEx",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemPoolGetAttribute",
    "cuMemPoolSetAttribute",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamQuery",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuTensorMapEncodeTiled",
];

/// Calls a function of the driver, inside an `unsafe` block.
macro_rules! call {
    ($name:ident($($arg:expr),* $(,)?)) => {
        $crate::device::cuda::driver::check(stringify!($name), cudarc::driver::sys::$name($($arg),*))
    };
}
pub(super) use call;

/// What a call gave, as a result.
pub(super) fn check(call: &'static str, result: sys::CUresult) -> Result<(), CudaError> {
    if result == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failed(call, result)) }
}

#[cold]
fn failed(call: &'static str, result: sys::CUresult) -> CudaError {
    let text = |get: unsafe fn(sys::CUresult, *mut *const std::ffi::c_char) -> sys::CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver writes the address of a text that lasts, or null.
        let known = unsafe { get(result, &mut text) == sys::CUresult::CUDA_SUCCESS && !text.is_null() };
        // SAFETY: as above.
        known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| "an unknown error".into());
    let what = text(sys::cuGetErrorString).unwrap_or_else(|| "failed".into());
    CudaError::Call { call, code: result as u32, name, what }
}

/// Why there is no library.
fn missing() -> CudaError {
    const NAME: &str = "libcuda.so.1";
    // SAFETY: as in `load`.
    match unsafe { libloading::Library::new(NAME) } {
        // The loader says `NAME: why` where it looked for others that this one needs, and if it has no more to say.
        Err(e) => {
            let (why, source) = (e.to_string(), std::error::Error::source(&e).map(ToString::to_string));
            let why = source.unwrap_or(why);
            let not_found = why.contains(&format!("{NAME}: cannot open shared object file: No such file"));
            if not_found { CudaError::NoDriver } else { CudaError::BrokenDriver(why) }
        }
        Ok(_) => CudaError::NoDriver,
    }
}

/// Loads the library, once.
pub(super) fn load() -> Result<(), CudaError> {
    static LOADED: OnceLock<Result<(), CudaError>> = OnceLock::new();
    LOADED
        .get_or_init(|| {
            // SAFETY: loading NVIDIA's driver has no effect on this process beyond itself.
            if !unsafe { sys::is_culib_present() } {
                return Err(missing());
            }
            // SAFETY: as above.
            let library = unsafe { sys::culib() };
            for name in FUNCTIONS {
                // SAFETY: only looked up, not called.
                if unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }.is_err() {
                    return Err(CudaError::OldDriver(name));
                }
            }
            // SAFETY: may be called at any time.
            unsafe { call!(cuInit(0)) }
        })
        .clone()
}

/// The newest version of CUDA that the driver supports, 12040 for 12.4.
pub(super) fn version() -> Result<u32, CudaError> {
    load()?;
    let mut version = 0;
    // SAFETY: the driver writes a number.
    unsafe { call!(cuDriverGetVersion(&mut version))? };
    Ok(version as u32)
}
