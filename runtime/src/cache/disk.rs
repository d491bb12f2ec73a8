//! The cache folder.
//!
//! An entry is one file, `KEY.so`: the artifact, its metadata, and a footer with its key, both lengths and a checksum.
//! Loaders of shared objects ignore what follows the object, so the entry itself is what is loaded, and debuggers and
//! profilers find it later. It is written under another name and renamed: other processes see all of it or nothing. Whatever
//! is wrong with an entry, it counts as missing and is replaced. A folder that cannot be written costs a warning.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, SystemTime},
};
use tegula_ir::protocol::Meta;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: [u8; 8] = *b"TGLCACHE";
const VERSION: u32 = 3;
/// Key (u128), lengths of artifact (u64) and metadata (u32), version (u32), checksum of all before it (u64), magic.
const FOOTER: usize = 16 + 8 + 4 + 4 + 8 + 8;
/// Bytes from the artifact's length to the end.
const LENGTHS: usize = 8 + 4 + 4 + 8 + 8;

/// Sizes beyond which the least recently used entries go, when the environment says nothing.
const DEFAULT_LIMIT: u64 = 1 << 30;

/// A folder of artifacts.
#[derive(Debug)]
pub struct DiskCache {
    dir: Option<PathBuf>,
    limit: u64,
    warned: AtomicBool,
}

/// A sound entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file, which starts with the artifact.
    pub path: PathBuf,
    /// The metadata.
    pub meta: Meta,
}

impl Entry {
    /// The artifact, read again.
    ///
    /// # Errors
    /// The file has gone or was cut meanwhile.
    pub fn artifact(&self) -> io::Result<Vec<u8>> {
        let mut content = fs::read(&self.path)?;
        let lengths = content.len().checked_sub(LENGTHS).and_then(|at| content[at..].first_chunk::<8>());
        let bytes = lengths.map(|len| u64::from_le_bytes(*len)).filter(|len| *len <= content.len() as u64);
        content.truncate(bytes.ok_or(io::ErrorKind::UnexpectedEof)? as usize);
        Ok(content)
    }
}

impl DiskCache {
    /// The user's cache: the folder `TEGULA_CACHE` (`off` for none), or `tegula/kernels` in the cache folder of the
    /// platform (`XDG_CACHE_HOME` or `~/.cache`). At most `TEGULA_CACHE_MB` megabytes, 1024 by default.
    pub fn of_user() -> DiskCache {
        if var("TEGULA_CACHE").is_some_and(|v| v == "off") {
            return DiskCache::none();
        }
        let dir = DiskCache::user_dir();
        if dir.is_none() {
            tracing::warn!("there is no folder for compiled kernels: set TEGULA_CACHE to one, or to `off`");
        }
        let limit = var("TEGULA_CACHE_MB").map_or(DEFAULT_LIMIT, |v| {
            limit_of(&v).unwrap_or_else(|| {
                tracing::warn!(
                    "TEGULA_CACHE_MB: expected a number of megabytes above 0, found `{}`; using {} (TEGULA_CACHE=off \
                     keeps nothing)",
                    v.display(),
                    DEFAULT_LIMIT >> 20
                );
                DEFAULT_LIMIT
            })
        });
        DiskCache { dir, limit, warned: AtomicBool::new(false) }
    }

    /// The folder of the user's cache, if there is one.
    pub(crate) fn user_dir() -> Option<PathBuf> {
        match var("TEGULA_CACHE") {
            Some(v) if v == "off" => None,
            Some(v) => Some(v.into()),
            None => var("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| var("HOME").map(|home| Path::new(&home).join(".cache")))
                .map(|cache| cache.join("tegula").join("kernels")),
        }
    }

    /// The cache in a folder, which is made when it is first written to. Entries together take at most about `limit`
    /// bytes.
    pub fn at(dir: impl Into<PathBuf>, limit: u64) -> DiskCache {
        DiskCache { dir: Some(dir.into()), limit, warned: AtomicBool::new(false) }
    }

    /// A cache that keeps nothing.
    pub fn none() -> DiskCache {
        DiskCache { dir: None, limit: 0, warned: AtomicBool::new(true) }
    }

    /// The folder.
    pub fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    fn entry(&self, key: u128) -> Option<PathBuf> {
        Some(self.dir.as_ref()?.join(format!("{key:032x}.so")))
    }

    /// The entry of a key, if there is a sound one. Marks it as used.
    pub fn load(&self, key: u128) -> Option<Entry> {
        let path = self.entry(key)?;
        let content = fs::read(&path).ok()?;
        let Some(meta) = parse(key, &content) else {
            tracing::warn!("the cache entry {} is damaged; compiling its kernel again", path.display());
            let _ = fs::remove_file(&path);
            return None;
        };
        // The time of change is the time of use. In a folder that is read-only it stays, harmlessly.
        if let Ok(file) = File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(Entry { path, meta })
    }

    /// Keeps an artifact. Gives the entry, or `None` (after a warning, once) when the folder cannot be written.
    pub fn store(&self, key: u128, artifact: &[u8], meta: &Meta) -> Option<Entry> {
        let path = self.entry(key)?;
        match compose(key, artifact, meta).and_then(|content| self.write(&path, &content)) {
            Ok(()) => {
                self.shrink(&path);
                Some(Entry { path, meta: meta.clone() })
            }
            Err(e) => {
                self.warn(&e);
                None
            }
        }
    }

    /// A short text kept under a name.
    pub fn note(&self, name: &str) -> Option<String> {
        let content = fs::read(self.dir.as_ref()?.join(format!("{name}.note"))).ok()?;
        let (sum, text) = content.split_first_chunk::<8>()?;
        (u64::from_le_bytes(*sum) == xxh3_64(text)).then(|| String::from_utf8(text.to_vec()).ok())?
    }

    /// Keeps a short text, if the folder can be written.
    pub fn set_note(&self, name: &str, text: &str) {
        let Some(dir) = &self.dir else { return };
        let content = [&xxh3_64(text.as_bytes()).to_le_bytes(), text.as_bytes()].concat();
        if let Err(e) = self.write(&dir.join(format!("{name}.note")), &content) {
            self.warn(&e);
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let dir = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        fs::create_dir_all(dir)?;
        // Removed again unless it is renamed.
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(dir)?;
        file.write_all(content)?;
        file.persist(path).map_err(|e| e.error)?;
        Ok(())
    }

    fn warn(&self, e: &io::Error) {
        if !self.warned.swap(true, Relaxed) {
            let dir = self.dir.as_deref().unwrap_or(Path::new("?")).display();
            tracing::warn!("the kernel cache {dir} cannot be written ({e}): compiled kernels are kept in memory only");
        }
    }

    /// Removes what was not used for longest, down to three quarters of the limit, once that is passed; and leavings of
    /// processes that were killed while writing. `keep` stays.
    fn shrink(&self, keep: &Path) {
        let Some(Ok(listing)) = self.dir.as_ref().map(fs::read_dir) else { return };
        let mut entries = vec![];
        for item in listing.flatten() {
            let Ok(meta) = item.metadata() else { continue };
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = item.file_name();
            if name.to_string_lossy().starts_with(TEMPORARY) {
                if used.elapsed().is_ok_and(|age| age > Duration::from_secs(3600)) {
                    let _ = fs::remove_file(item.path());
                }
            } else if meta.is_file() && is_ours(&name.to_string_lossy()) {
                entries.push((used, meta.len(), item.path()));
            }
        }
        let mut size: u64 = entries.iter().map(|e| e.1).sum();
        if size <= self.limit {
            return;
        }
        entries.sort();
        for (_, bytes, path) in entries.iter().filter(|e| e.2 != keep) {
            if size <= self.limit / 4 * 3 {
                break;
            }
            // Programs that have it loaded keep it: only its name goes.
            if fs::remove_file(path).is_ok() {
                size -= bytes;
            }
        }
    }
}

/// Whether a file of that name was written here: the folder may hold others' files, which are not ours to remove.
fn is_ours(name: &str) -> bool {
    let key = |stem: &str| stem.len() == 32 && stem.bytes().all(|b| b.is_ascii_hexdigit());
    name.strip_suffix(".so").is_some_and(key) || name.starts_with("compiler-") && name.ends_with(".note")
}

/// A variable of the environment that says something.
fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|v| !v.is_empty())
}

/// The bytes that a value of `TEGULA_CACHE_MB` allows.
fn limit_of(megabytes: &OsStr) -> Option<u64> {
    let n: u64 = megabytes.to_str()?.parse().ok()?;
    (n > 0).then(|| n.saturating_mul(1 << 20))
}

const TEMPORARY: &str = ".writing-";

fn compose(key: u128, artifact: &[u8], meta: &Meta) -> io::Result<Vec<u8>> {
    let meta = postcard::to_stdvec(meta).map_err(io::Error::other)?;
    let meta_len = u32::try_from(meta.len()).map_err(io::Error::other)?;
    let mut content = [artifact, &meta].concat();
    content.extend(key.to_le_bytes());
    content.extend((artifact.len() as u64).to_le_bytes());
    content.extend(meta_len.to_le_bytes());
    content.extend(VERSION.to_le_bytes());
    content.extend(checksum(&content).to_le_bytes());
    content.extend(MAGIC);
    Ok(content)
}

fn checksum(content: &[u8]) -> u64 {
    let mut h = Xxh3::with_seed(VERSION.into());
    h.update(content);
    h.digest()
}

/// The metadata of an entry, if the entry is sound and was stored under this key.
fn parse(key: u128, content: &[u8]) -> Option<Meta> {
    let body = content.len().checked_sub(FOOTER)?;
    let (body, footer) = content.split_at(body);
    let (stored_key, rest) = footer.split_at(16);
    let (lengths, sum_and_magic) = rest.split_at(16);
    let (sum, magic) = sum_and_magic.split_at(8);
    let artifact_len = u64::from_le_bytes(lengths[..8].try_into().ok()?);
    let meta_len = u32::from_le_bytes(lengths[8..12].try_into().ok()?);
    let sound = magic == MAGIC
        && stored_key == key.to_le_bytes()
        && lengths[12..] == VERSION.to_le_bytes()
        && sum == checksum(&content[..body.len() + 32]).to_le_bytes()
        && artifact_len.checked_add(meta_len.into()) == Some(body.len() as u64);
    if !sound {
        return None;
    }
    postcard::from_bytes(&body[artifact_len as usize..]).ok()
}
