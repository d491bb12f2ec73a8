//! An opened GPU.

use super::{
    CudaError,
    driver::{self, call},
};
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use std::{ffi::CStr, fmt, ptr, sync::Arc};

/// A GPU, and this process's context on it.
pub struct Gpu {
    ordinal: u32,
    device: sys::CUdevice,
    context: sys::CUcontext,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
    shared_bytes: usize,
    memory_bytes: usize,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Gpu {}
// SAFETY: as above.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// So many GPUs does the driver show.
    pub fn count() -> Result<u32, CudaError> {
        driver::load()?;
        let mut count = 0;
        // SAFETY: the driver writes a number.
        unsafe { call!(cuDeviceGetCount(&mut count))? };
        Ok(count.max(0) as u32)
    }

    /// The newest version of CUDA that the driver supports, 12040 for 12.4.
    pub fn driver_version() -> Result<u32, CudaError> {
        driver::version()
    }

    /// Opens the GPU with the number `ordinal`, as CUDA counts them.
    ///
    /// # Errors
    /// There is no driver, it is too old, or there is no such GPU: the error says what to do.
    pub fn open(ordinal: u32) -> Result<Arc<Gpu>, CudaError> {
        let count = Gpu::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let (mut device, mut name, mut memory_bytes) = (0, [0; 256], 0);
        // SAFETY: the driver writes a handle, a text of at most 256 bytes with its end, a number.
        unsafe {
            call!(cuDeviceGet(&mut device, ordinal as i32))?;
            call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device))?;
            call!(cuDeviceTotalMem_v2(&mut memory_bytes, device))?;
        }
        let attribute = |which: Attribute| -> Result<u32, CudaError> {
            let mut value = 0;
            // SAFETY: the driver writes a number.
            unsafe { call!(cuDeviceGetAttribute(&mut value, which, device))? };
            Ok(value.max(0) as u32)
        };
        // SAFETY: it ends with 0.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let capability = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        if attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            let problem = format!("cuda:{ordinal} ({name}) cannot allocate in stream order, which is needed");
            return Err(CudaError::Usage(problem));
        }
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let shared_bytes = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as usize;
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes a handle. Last, since from here on it must be released.
        unsafe { call!(cuDevicePrimaryCtxRetain(&mut context, device))? };
        let gpu = Gpu { ordinal, device, context, name, capability, multiprocessors, shared_bytes, memory_bytes };
        gpu.bind()?;
        gpu.keep_freed_memory()?;
        Ok(Arc::new(gpu))
    }

    /// Freed memory stays with this process, for its next allocations: otherwise every wait would give it back.
    fn keep_freed_memory(&self) -> Result<(), CudaError> {
        let (mut pool, mut all) = (ptr::null_mut(), u64::MAX);
        // SAFETY: the driver writes a handle and reads a number of 64 bits.
        unsafe {
            call!(cuDeviceGetDefaultMemPool(&mut pool, self.device))?;
            call!(cuMemPoolSetAttribute(
                pool,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                ptr::from_mut(&mut all).cast()
            ))
        }
    }

    /// Makes this GPU the one that the calling thread's further calls are about.
    pub(super) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context lives as long as `self`.
        unsafe { call!(cuCtxSetCurrent(self.context)) }
    }

    /// Waits until all that was put into any of its streams is done. Errors of kernels show here.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.bind()?;
        // SAFETY: may be called at any time.
        unsafe { call!(cuCtxSynchronize()) }
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }
    /// Its name: `NVIDIA H200`.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its compute capability: (9, 0).
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }
    /// Its multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }
    /// Shared memory that a block may have, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.shared_bytes
    }
    /// Its memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes of its memory that nobody uses now.
    pub fn free_bytes(&self) -> Result<usize, CudaError> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: the driver writes two numbers.
        unsafe { call!(cuMemGetInfo_v2(&mut free, &mut total))? };
        Ok(free)
    }
}

impl Gpu {
    /// Bytes that this process has freed and keeps for its next allocations.
    pub fn kept_bytes(&self) -> Result<usize, CudaError> {
        use sys::CUmemPool_attribute::{CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
        self.bind()?;
        let get = |which| -> Result<u64, CudaError> {
            let (mut pool, mut bytes) = (ptr::null_mut(), 0u64);
            // SAFETY: the driver writes a handle, and a number of 64 bits.
            unsafe {
                call!(cuDeviceGetDefaultMemPool(&mut pool, self.device))?;
                call!(cuMemPoolGetAttribute(pool, which, ptr::from_mut(&mut bytes).cast()))?;
            }
            Ok(bytes)
        };
        let kept = get(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?.saturating_sub(get(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?);
        Ok(kept as usize)
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: retained in `open`; whatever uses the context holds this Gpu.
        let _ = unsafe { call!(cuDevicePrimaryCtxRelease_v2(self.device)) };
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu(cuda:{}, {})", self.ordinal, self.name)
    }
}
