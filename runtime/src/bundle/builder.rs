//! Making a bundle of artifacts.

use super::{Kind, format, kernel_key};
use std::{collections::BTreeMap, io::Write, path::Path};
use tegula_ir::{Kernel, protocol::Meta};

/// The newest PTX that drivers of `sm_80`'s time translate.
const OLDEST_PTX: (u32, u32) = (8, 0);

/// Collects artifacts. The order in which they are added does not matter.
#[derive(Debug)]
pub struct Builder {
    compiler: String,
    entries: BTreeMap<(u128, String, Kind), (format::Entry, Vec<u8>)>,
}

/// Why a bundle cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BuilderError {
    /// An artifact that does not belong there.
    #[error("kernel `{kernel}` for {target}: {what}")]
    Artifact {
        /// The kernel.
        kernel: String,
        /// What it was compiled for.
        target: String,
        /// What is wrong.
        what: String,
    },
    /// The bundle cannot be put together.
    #[error("the bundle cannot be put together: {0}")]
    Compose(String),
    /// The file cannot be written.
    #[error("cannot write the bundle {file}: {why}")]
    Write {
        /// Its path.
        file: String,
        /// Why.
        why: String,
    },
}

impl Builder {
    /// An empty bundle. `compiler`: what makes the artifacts, as `tegulac --version` says.
    pub fn new(compiler: impl Into<String>) -> Builder {
        Builder { compiler: compiler.into(), entries: BTreeMap::new() }
    }

    /// Adds an artifact; one of the same kernel, target and kind is replaced.
    ///
    /// # Errors
    /// PTX for `sm_80` that needs more than PTX 8.0: older drivers could not translate it, and it is what newer GPUs fall
    /// back on.
    pub fn add(
        &mut self,
        kernel: &Kernel,
        checked: bool,
        target: &str,
        kind: Kind,
        artifact: Vec<u8>,
        meta: Meta,
    ) -> Result<(), BuilderError> {
        if kind == Kind::Ptx && target == "sm_80" && ptx_version(&artifact).is_none_or(|v| v > OLDEST_PTX) {
            let found = ptx_version(&artifact).map_or("none".into(), |(major, minor)| format!("{major}.{minor}"));
            let what = format!("expected PTX of a version up to 8.0, found version {found}");
            return Err(BuilderError::Artifact { kernel: kernel.name.clone(), target: target.into(), what });
        }
        let (key, target, name) = (kernel_key(kernel, checked), target.to_owned(), kernel.name.clone());
        let entry = format::Entry { key, kernel: name, checked, target: target.clone(), kind, meta, blob: 0 };
        self.entries.insert((key, target, kind), (entry, artifact));
        Ok(())
    }

    /// How many artifacts there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes of the bundle.
    ///
    /// # Errors
    /// An artifact is longer than 256 MB.
    pub fn bytes(&self) -> Result<Vec<u8>, BuilderError> {
        let entries = self.entries.values().map(|(entry, _)| entry.clone()).collect();
        let artifacts: Vec<&[u8]> = self.entries.values().map(|(_, artifact)| &artifact[..]).collect();
        format::compose(&self.compiler, entries, &artifacts).map_err(BuilderError::Compose)
    }

    /// Writes the bundle: all of it, or, after an error, nothing. Gives its size.
    ///
    /// # Errors
    /// As [`Builder::bytes`]; the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<usize, BuilderError> {
        let (path, bytes) = (path.as_ref(), self.bytes()?);
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let write = || {
            let mut builder = tempfile::Builder::new();
            // For everybody to read, as far as the user's mask allows: it is shipped.
            #[cfg(unix)]
            builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
            let mut file = builder.prefix(".bundle-").tempfile_in(folder)?;
            file.write_all(&bytes)?;
            file.persist(path).map_err(|e| e.error)
        };
        let failed = |e: std::io::Error| BuilderError::Write { file: path.display().to_string(), why: e.to_string() };
        write().map_err(failed)?;
        Ok(bytes.len())
    }
}

/// What a PTX text says with `.version`.
fn ptx_version(text: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let version = text.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = version.trim().split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
