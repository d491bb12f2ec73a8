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
    /// The nameless file that it was loaded from, if there is one. The loader takes equal names for the same library: while
    /// this one is loaded, no other file may get the same number.
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

    /// Loads from memory: from a bundle, or when there is no folder to keep it in. Leaves no file behind.
    pub fn from_bytes(bytes: &[u8], meta: Meta) -> Result<Module, DeviceError> {
        let Ok((file, path)) = nameless(bytes) else { return Module::from_temporary(bytes, meta) };
        match Module::from_file(Path::new(&path), meta.clone()) {
            Ok(module) => Ok(Module { file: Some(file), ..module }),
            // A policy may forbid what has no name.
            Err(_) => Module::from_temporary(bytes, meta),
        }
    }

    /// The same through a file that has a name while it is loaded, for systems that cannot load one without.
    fn from_temporary(bytes: &[u8], meta: Meta) -> Result<Module, DeviceError> {
        let write = || {
            let mut file = tempfile::Builder::new().prefix("tegula-kernel-").suffix(".so").tempfile()?;
            file.write_all(bytes)?;
            Ok(file.into_temp_path())
        };
        let failed = |e: io::Error| DeviceError::Load {
            file: std::env::temp_dir(),
            why: format!("a kernel has to be written there first (TMPDIR names another folder): {e}"),
        };
        let path = write().map_err(failed)?;
        // What is loaded stays, its name goes.
        Module::from_file(&path, meta)
    }
}

/// A file without a name, which its path reaches as long as it is open: through /proc, so it must be there.
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
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::metadata(&path)?;
    file.write_all(bytes)?;
    Ok((file, path))
}

#[cfg(not(target_os = "linux"))]
fn nameless(_: &[u8]) -> io::Result<(File, String)> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_loaded_through_a_temporary_file_that_does_not_stay() {
        let ours = || {
            let mark = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with("tegula-kernel-");
            std::fs::read_dir(std::env::temp_dir()).unwrap().flatten().filter(mark).count()
        };
        // No library: written, refused by the loader, removed.
        let before = ours();
        let error = Module::from_temporary(b"no library", Meta::default()).err().map(|e| e.to_string());
        assert!(
            error.as_ref().is_some_and(|e| e.contains("tegula-kernel-") && e.contains("cannot be loaded")),
            "{error:?}"
        );
        assert_eq!(ours(), before);
        let error = Module::from_bytes(b"no library", Meta::default()).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("cannot be loaded")));
    }
}
