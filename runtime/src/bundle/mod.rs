//! Bundles: compiled kernels in one file beside a program, or inside it. With one, neither a compiler nor a cache is
//! needed where the program runs.
//!
//! - [`Bundle`]: an opened file: what is in it, and [`Bundle::find`], which every device asks before its cache and the
//!   compiler;
//! - [`Machine`]: what a kernel must run on, and which artifacts it takes, best first;
//! - [`Shipped`]: which bundle a device uses: the one given, or the program's own ([`Bundle::of_program`]);
//! - [`make`]: makes one: notes what kernels a program launches ([`Recorder`]) and compiles them for some targets;
//! - [`Builder`]: puts artifacts together and writes them;
//! - `format`: the bytes of the file.
//!
//! A bundle is frozen: what it has for a kernel is used whatever compiler is at hand. It finds a kernel by its canonical IR
//! ([`kernel_key`]), so a kernel that was changed after the bundle was made is not found in it. Source lines, which prints
//! and failed checks tell, are part of the IR, with paths as rustc was given them: a kernel with such lines, in a package
//! that is built from another folder, is not found either. The bytes of a bundle depend on its kernels, their source lines, targets and compiler alone: no times, no paths but those of the
//! kernels' sources as rustc was given them.

mod builder;
mod error;
mod format;
mod machine;
mod make;
mod recorder;
mod shipped;

pub use crate::cache::kernel_key;
pub use builder::{Builder, BuilderError};
pub use error::{BundleError, Missing};
pub use machine::{Kind, Machine};
pub use make::{Made, MakeError, MakeOptions, make};
pub use recorder::{Recorded, Recorder};
pub use shipped::Shipped;

use format::Index;
use std::{borrow::Cow, collections::BTreeSet, fmt, path::Path, sync::Arc};
use tegula_ir::{Kernel, protocol::Meta};

/// An opened bundle. Clones are the same bundle.
#[derive(Clone)]
pub struct Bundle {
    inner: Arc<Inner>,
}

struct Inner {
    /// For messages: its path, or what it is.
    name: String,
    bytes: Cow<'static, [u8]>,
    index: Index,
}

/// An artifact, and what goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it was compiled for: `cpu:x86-64-v3`, `sm_90a`.
    pub target: String,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the runtime must know about it.
    pub meta: Meta,
}

/// One line of a bundle's table of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Key of the kernel's IR: [`kernel_key`].
    pub key: u128,
    /// Whether checks of indices and assertions are compiled in.
    pub checked: bool,
    /// What it was compiled for.
    pub target: &'a str,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub bytes: usize,
    /// The bytes that it takes in the file; items with equal artifacts share them.
    pub packed: usize,
}

impl Bundle {
    /// Opens a file and checks all of it.
    ///
    /// # Errors
    /// It cannot be read, is no bundle, is damaged, or was made for another version of Tegula.
    pub fn open(path: impl AsRef<Path>) -> Result<Bundle, BundleError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| BundleError::unreadable(&name, &e))?;
        Bundle::new(name, bytes.into())
    }

    /// Opens a bundle that is part of the program, as of `include_bytes!`.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn from_bytes(bytes: &'static [u8]) -> Result<Bundle, BundleError> {
        Bundle::new("inside the program".into(), bytes.into())
    }

    fn new(name: String, bytes: Cow<'static, [u8]>) -> Result<Bundle, BundleError> {
        let index = format::parse(&bytes).map_err(|fault| fault.of(&name))?;
        Ok(Bundle { inner: Arc::new(Inner { name, bytes, index }) })
    }

    /// Its path, or `inside the program`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Which compiler made its artifacts.
    pub fn compiler(&self) -> &str {
        &self.inner.index.compiler
    }

    /// All that it has, by kernel key, target and kind.
    pub fn items(&self) -> impl Iterator<Item = Item<'_>> {
        let Index { entries, blobs, .. } = &self.inner.index;
        entries.iter().map(|e| {
            let blob = &blobs[e.blob as usize];
            Item {
                kernel: &e.kernel,
                key: e.key,
                checked: e.checked,
                target: &e.target,
                kind: e.kind,
                bytes: blob.bytes as usize,
                packed: blob.packed as usize,
            }
        })
    }

    /// What its kernels were compiled for.
    pub fn targets(&self) -> BTreeSet<&str> {
        self.inner.index.entries.iter().map(|e| e.target.as_str()).collect()
    }

    /// The best artifact of a kernel that a machine can run, if there is one: see [`Machine`] for what is best.
    ///
    /// # Errors
    /// What is there cannot be unpacked.
    pub fn find(&self, kernel: &Kernel, checked: bool, machine: &Machine) -> Result<Option<Found>, BundleError> {
        self.find_key(kernel_key(kernel, checked), machine)
    }

    /// The same for a kernel of that [`kernel_key`].
    ///
    /// # Errors
    /// As [`Bundle::find`].
    pub fn find_key(&self, key: u128, machine: &Machine) -> Result<Option<Found>, BundleError> {
        self.all_of_key(key, machine).next().transpose()
    }

    /// All artifacts of a kernel that a machine takes, best first: a driver may refuse one, if it is older than the compiler.
    pub(crate) fn all_of_key(
        &self,
        key: u128,
        machine: &Machine,
    ) -> impl Iterator<Item = Result<Found, BundleError>> + use<'_> {
        let entries = &self.inner.index.entries;
        machine.takes().collect::<Vec<_>>().into_iter().filter_map(move |(target, kind)| {
            let at = entries.binary_search_by(|e| e.order().cmp(&(key, &target, kind)));
            let entry = &entries[at.ok()?];
            let bytes = format::unpack(&self.inner.bytes, &self.inner.index, entry.blob);
            let found =
                |bytes| Found { target: entry.target.clone(), kind: entry.kind, bytes, meta: entry.meta.clone() };
            Some(bytes.map(found).map_err(|fault| fault.of(&self.inner.name)))
        })
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bundle({}, {} artifacts)", self.inner.name, self.inner.index.entries.len())
    }
}

#[cfg(test)]
mod tests;
