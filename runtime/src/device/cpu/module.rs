//! A shared object with a kernel, loaded.

use crate::device::DeviceError;
use libloading::Library;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};
use tegula_ir::{
    abi::{ENTRY, EntryFn},
    protocol::Meta,
};

/// A loaded kernel.
pub(super) struct Module {
    /// Its function.
    pub entry: EntryFn,
    /// What goes with it.
    pub meta: Meta,
    /// Unloaded when dropped, before `file`.
    #[allow(dead_code, reason = "keeps the code loaded")]
    library: Library,
    /// The nameless file that it was loaded from. The loader takes equal names for the same library: while this one is
    /// loaded, no other file may get the same number.
    #[allow(dead_code, reason = "keeps its number taken")]
    file: Option<File>,
}

impl Module {
    /// Loads a file that stays where it is.
    pub fn from_file(path: &Path, meta: Meta) -> Result<Module, DeviceError> {
        let failed = |e: libloading::Error| DeviceError::Load { file: path.into(), why: e.to_string() };
        // SAFETY: the compiler's output: it has no initialisers, and one function of this type.
        unsafe {
            let library = Library::new(path).map_err(failed)?;
            let entry = *library.get::<EntryFn>(ENTRY).map_err(failed)?;
            Ok(Module { entry, meta, library, file: None })
        }
    }

    /// Loads from memory, for when there is no folder to keep it in.
    pub fn from_bytes(bytes: &[u8], meta: Meta) -> Result<Module, DeviceError> {
        let (file, path) =
            nameless(bytes).map_err(|e| DeviceError::Load { file: "(memory)".into(), why: e.to_string() })?;
        let mut module = Module::from_file(Path::new(&path), meta)?;
        module.file = Some(file);
        Ok(module)
    }
}

/// A file without a name, which its path reaches as long as it is open.
#[cfg(target_os = "linux")]
fn nameless(bytes: &[u8]) -> io::Result<(File, String)> {
    use std::os::fd::{AsRawFd, FromRawFd};
    // SAFETY: a new file descriptor, which the File owns from here on.
    let mut file = unsafe {
        match libc::memfd_create(c"tegula-kernel".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(io::Error::last_os_error()),
            fd => File::from_raw_fd(fd),
        }
    };
    file.write_all(bytes)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok((file, path))
}

#[cfg(not(target_os = "linux"))]
fn nameless(bytes: &[u8]) -> io::Result<(File, String)> {
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(bytes)?;
    let (file, path) = file.keep().map_err(|e| e.error)?;
    Ok((file, path.display().to_string()))
}
