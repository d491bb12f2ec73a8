//! A kernel's code on a GPU.

use super::{
    super::{CudaError, Function, Gpu, Image, Module},
    order::Order,
};
use crate::device::{DeviceError, modules::Artifact};
use std::{mem::ManuallyDrop, path::PathBuf, sync::Arc};
use tegula_ir::{abi::gpu, protocol::Meta};

/// Loaded code.
pub(super) struct Code {
    /// The kernel's name.
    pub name: Arc<str>,
    pub function: ManuallyDrop<Function>,
    pub meta: Meta,
    order: Arc<Order>,
}

impl Code {
    /// Loads an artifact of the kernel `name`.
    pub fn open(name: &str, artifact: Artifact, gpu: &Arc<Gpu>, order: &Arc<Order>) -> Result<Code, DeviceError> {
        let (file, bytes, meta) = match artifact {
            Artifact::Kept(entry) => (entry.path.clone(), entry.artifact(), entry.meta),
            Artifact::Loose(bytes, meta) => (PathBuf::from("(memory)"), Ok(bytes), meta),
            Artifact::Bundled(found) => (PathBuf::from("(bundle)"), Ok(found.bytes), found.meta),
        };
        let broken = |why: String| DeviceError::Load { file: file.clone(), why };
        let bytes = bytes.map_err(|e| broken(e.to_string()))?;
        let image = if bytes.starts_with(b"\x7fELF") {
            Image::Cubin(&bytes)
        } else {
            Image::Ptx(std::str::from_utf8(&bytes).map_err(|e| broken(e.to_string()))?)
        };
        let failed = |e| DeviceError::Cuda { place: format!("cuda:{}", gpu.ordinal()), error: order.explain(e) };
        let (shared, most) = (meta.shared_bytes, gpu.shared_bytes() as u64);
        if shared > most {
            let problem = format!("{shared} bytes of shared memory are {} more than a block can have", shared - most);
            return Err(failed(CudaError::Usage(problem)));
        }
        let function = Module::load(gpu, image).and_then(|m| m.function(gpu::ENTRY)).map_err(failed)?;
        if shared > 0 {
            function.allow_shared(shared as u32).map_err(failed)?;
        }
        Ok(Code { name: name.into(), function: ManuallyDrop::new(function), meta, order: order.clone() })
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // Unloading waits for the whole GPU, which would spoil a recording that is under way: then the code stays loaded.
        let uses = self.order.uses();
        if uses.recordings.is_empty() {
            // SAFETY: dropped nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.function) };
        }
    }
}
