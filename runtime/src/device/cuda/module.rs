//! Code on a GPU, and running it.

use super::{CudaError, Gpu, Stream, driver::call};
use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUjit_option as Jit};
use std::{
    ffi::{CString, c_void},
    ptr,
    sync::Arc,
};

/// Bytes of the driver's compiler's messages that are kept.
const LOG: usize = 16 << 10;

/// Code to load.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// Text, which the driver compiles for its GPU.
    Ptx(&'a str),
    /// Machine code of one architecture.
    Cubin(&'a [u8]),
}

/// Whether an error says something about the code, and not about the GPU, its memory, or kernels before.
fn is_about_code(code: u32) -> bool {
    // Invalid image, none for this GPU, invalid PTX, no compiler for PTX, PTX too new, PTX forbidden, invalid source.
    matches!(code, 200 | 209 | 218 | 221..=223 | 300)
}

/// Loaded code.
pub struct Module {
    raw: sys::CUmodule,
    gpu: Arc<Gpu>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

impl Module {
    /// Loads code.
    ///
    /// # Errors
    /// [`CudaError::Load`], with what the driver's compiler says, if the code is what is wrong.
    pub fn load(gpu: &Arc<Gpu>, image: Image<'_>) -> Result<Arc<Module>, CudaError> {
        gpu.bind()?;
        let (kind, bytes) = match image {
            Image::Ptx(text) => ("PTX", text.as_bytes()),
            Image::Cubin(bytes) => ("cubin", bytes),
        };
        // The driver finds the end of a text by a 0, and that of machine code by its header.
        let mut data = Vec::with_capacity(bytes.len() + 1);
        data.extend_from_slice(bytes);
        data.push(0);
        let mut log = vec![0u8; LOG];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(LOG)];
        let mut raw = ptr::null_mut();
        // SAFETY: code with its end, two options with their values (a buffer, its size as a number); the driver writes a
        // handle.
        let loaded = unsafe {
            call!(cuModuleLoadDataEx(&mut raw, data.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()))
        };
        match loaded {
            Ok(()) => Ok(Arc::new(Module { raw, gpu: gpu.clone() })),
            Err(error) if !error.code().is_some_and(is_about_code) => Err(error),
            Err(error) => {
                let end = log.iter().position(|b| *b == 0).unwrap_or(LOG);
                let log = String::from_utf8_lossy(&log[..end]).trim_end().to_string();
                Err(CudaError::Load { kind, error: Box::new(error), log })
            }
        }
    }

    /// The kernel of that name.
    pub fn function(self: &Arc<Self>, name: &str) -> Result<Function, CudaError> {
        self.gpu.bind()?;
        let text = CString::new(name).map_err(|_| CudaError::Usage(format!("`{name}` is no name of a kernel")))?;
        let mut raw = ptr::null_mut();
        // SAFETY: a live module, a text with its end; the driver writes a handle.
        unsafe { call!(cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()))? };
        Ok(Function { raw, module: self.clone() })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // Its kernels may be under way.
        let _ = self.gpu.synchronize();
        // SAFETY: a live module, which nobody uses afterwards.
        let _ = unsafe { call!(cuModuleUnload(self.raw)) };
    }
}

/// A kernel.
pub struct Function {
    raw: sys::CUfunction,
    module: Arc<Module>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of a thread in slow memory, where registers that did not fit are.
    pub local_bytes: u32,
    /// Bytes of shared memory that its code asks for.
    pub shared_bytes: u32,
    /// Most threads of a block.
    pub max_threads: u32,
}

/// Sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster, if the kernel's code does not say.
    pub cluster: Option<[u32; 3]>,
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Function {
    /// What it takes.
    pub fn resources(&self) -> Result<Resources, CudaError> {
        self.module.gpu.bind()?;
        let get = |which: Attribute| -> Result<u32, CudaError> {
            let mut value = 0;
            // SAFETY: a live kernel; the driver writes a number.
            unsafe { call!(cuFuncGetAttribute(&mut value, which, self.raw))? };
            Ok(value.max(0) as u32)
        };
        Ok(Resources {
            registers: get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            max_threads: get(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    /// Lets launches ask for so many bytes of dynamic shared memory; 48 KiB are allowed without.
    pub fn allow_shared(&self, bytes: u32) -> Result<(), CudaError> {
        self.module.gpu.bind()?;
        let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: a live kernel.
        unsafe { call!(cuFuncSetAttribute(self.raw, which, bytes as i32)) }
    }

    /// Puts a launch into a stream. `params` point to the kernel's parameters, which are copied before this returns.
    ///
    /// # Safety
    /// As many parameters as the kernel has, each as large as it says; what the kernel does with them is right, until it
    /// is done.
    pub unsafe fn launch(&self, stream: &Stream, shape: &Shape, params: &mut [*mut c_void]) -> Result<(), CudaError> {
        self.module.gpu.bind()?;
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { pad: [0; 64] },
        };
        if let Some([x, y, z]) = shape.cluster {
            attribute.value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
        }
        let config = sys::CUlaunchConfig {
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.shared_bytes,
            hStream: stream.raw(),
            attrs: &mut attribute,
            numAttrs: shape.cluster.is_some() as u32,
        };
        // SAFETY: live handles, as many attributes as said; parameters by this function's contract.
        unsafe { call!(cuLaunchKernelEx(&config, self.raw, params.as_mut_ptr(), ptr::null_mut())) }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_some_errors_are_about_the_code() {
        let about = |code| super::is_about_code(code);
        assert!([200, 209, 218, 222].into_iter().all(about));
        // No memory, other kernels' faults, a lost context.
        assert!(![2, 201, 700, 702, 719].into_iter().any(about));
    }
}
