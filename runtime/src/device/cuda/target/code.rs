//! A kernel's code on a GPU.

use super::super::{CudaError, Function, Gpu, Image, Module};
use crate::device::{DeviceError, modules::Artifact};
use std::{path::PathBuf, sync::Arc};
use tegula_ir::{abi::gpu, protocol::Meta};

/// Loaded code.
pub(super) struct Code {
    pub function: Function,
    pub meta: Meta,
}

impl Code {
    /// Loads an artifact.
    pub fn open(artifact: Artifact, gpu: &Arc<Gpu>, place: &str) -> Result<Code, DeviceError> {
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
        let failed = |error| DeviceError::Cuda { place: place.into(), error };
        let (shared, most) = (meta.shared_bytes, gpu.shared_bytes() as u64);
        if shared > most {
            let problem = format!("{shared} bytes of shared memory are {} more than a block can have", shared - most);
            return Err(failed(CudaError::Usage(problem)));
        }
        let function = Module::load(gpu, image).and_then(|m| m.function(gpu::ENTRY)).map_err(failed)?;
        if shared > 0 {
            function.allow_shared(shared as u32).map_err(failed)?;
        }
        Ok(Code { function, meta })
    }
}
