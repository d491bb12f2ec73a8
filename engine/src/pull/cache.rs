//! The model cache: a folder of whole, checked files. A file appears in it by rename only, so what is there is complete.

use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::PullError;

/// The folder models are kept in: `$TEGULA_HOME/models`, else `$XDG_CACHE_HOME/tegula/models`, else
/// `~/.cache/tegula/models`.
pub fn models_dir() -> Result<PathBuf, PullError> {
    let dir = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = dir("TEGULA_HOME") {
        return Ok(home.join("models"));
    }
    let cache = dir("XDG_CACHE_HOME").filter(|path| path.is_absolute()).or_else(|| Some(dir("HOME")?.join(".cache")));
    Ok(cache.ok_or(PullError::NoCacheDir)?.join("tegula/models"))
}

/// Held while one process fetches into the cache, so that a second one waits and then finds the file.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code, reason = "the lock is released when the file is closed")] File);

/// Waits for the lock of the file that will be at `target`. `waiting` is called once if another process holds it.
pub(super) fn lock(target: &Path, waiting: impl FnOnce()) -> Result<Lock, PullError> {
    let path = beside(target, "lock");
    let failed = |source| PullError::Io { path: path.clone(), doing: "locking", source };
    if let Some(dir) = target.parent() {
        fs::create_dir_all(dir).map_err(|source| PullError::Io { path: dir.to_owned(), doing: "creating", source })?;
    }
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => return Ok(Lock(file)),
        Err(fs::TryLockError::WouldBlock) => waiting(),
        Err(fs::TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.lock().map_err(failed)?;
    Ok(Lock(file))
}

/// The path beside `target` with another ending, for files that belong to it: `.model.gguf.lock`.
pub(super) fn beside(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

/// Makes the finished file `part` appear as `target`, on disk before it appears.
pub(super) fn install(part: &Path, target: &Path) -> Result<(), PullError> {
    let failed = |source: io::Error| PullError::Io { path: target.to_owned(), doing: "finishing", source };
    File::open(part).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(part, target).map_err(failed)
}
