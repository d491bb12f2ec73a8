//! Where the compiler program is, and which one it is.

use super::{CompileError, worker};
use crate::cache::DiskCache;
use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, UNIX_EPOCH},
};

/// The compiler program, looked for once, at first use.
#[derive(Debug, Default)]
pub struct Program {
    fixed: Option<PathBuf>,
    found: OnceLock<Result<PathBuf, CompileError>>,
    identity: OnceLock<Result<Identity, CompileError>>,
}

/// Which compiler it is: what `tegulac --version` says, which contains the hash of the compiler's sources. Part of every
/// cache key: an edited compiler never finds an old artifact.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub String);

impl Program {
    /// The one that [`find`] finds.
    pub fn new() -> Program {
        Program::default()
    }

    /// This one.
    pub fn at(path: impl Into<PathBuf>) -> Program {
        Program { fixed: Some(path.into()), ..Program::default() }
    }

    /// Its path.
    pub fn path(&self) -> Result<&Path, CompileError> {
        let found = self.found.get_or_init(|| match &self.fixed {
            Some(path) => check(path.clone()),
            None => find(),
        });
        found.as_deref().map_err(CompileError::clone)
    }

    /// Which compiler it is. The answer is remembered on disk for the file's path, size and time of change, so that a
    /// program that finds all its kernels in the cache starts no compiler, not even to ask this. Where there is no
    /// compiler, it is the one last used with this cache: its artifacts still run.
    pub fn identity(&self, cache: &DiskCache) -> Result<&Identity, CompileError> {
        let identity = self.identity.get_or_init(|| {
            let path = match self.path() {
                Ok(path) => path,
                Err(e) => return cache.note(LAST).map(Identity).ok_or(e),
            };
            let stamp = stamp(path);
            if let Some(known) = stamp.as_ref().and_then(|s| cache.note(s)) {
                return Ok(Identity(known));
            }
            let version = worker::version(path, Duration::from_secs(20))?;
            if let Some(stamp) = stamp {
                cache.set_note(&stamp, &version);
            }
            cache.set_note(LAST, &version);
            Ok(Identity(version))
        });
        identity.as_ref().map_err(CompileError::clone)
    }
}

impl Program {
    /// Which of NVIDIA's assemblers the compiler uses for cubins, `None` if it finds none. Asks it each time.
    pub fn ptxas(&self) -> Result<Option<String>, CompileError> {
        let path = self.path()?;
        let unusable = |e: std::io::Error| CompileError::Unusable { program: path.into(), why: e.to_string() };
        let asked = std::process::Command::new(path).arg("--ptxas").stdin(std::process::Stdio::null()).output();
        let asked = asked.map_err(unusable)?;
        Ok(asked.status.success().then(|| String::from_utf8_lossy(asked.stdout.trim_ascii()).into_owned()))
    }
}

/// Name of the note about the compiler last asked.
const LAST: &str = "compiler-last";

/// What tells one build of the program from another without running it.
fn stamp(path: &Path) -> Option<String> {
    let meta = fs::metadata(path).ok()?;
    let time = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let all = format!("{}\n{}\n{}", path.display(), meta.len(), time.as_nanos());
    Some(format!("compiler-{:032x}", xxhash_rust::xxh3::xxh3_128(all.as_bytes())))
}

fn check(path: PathBuf) -> Result<PathBuf, CompileError> {
    if path.is_dir() {
        let why = "it is a folder; name the program in it".into();
        return Err(CompileError::Unusable { program: path, why });
    }
    if path.is_file() { Ok(path) } else { Err(CompileError::NotFound { looked: vec![path.display().to_string()] }) }
}

/// Looks for the compiler: `TEGULAC`; beside this program and one folder up (where cargo puts it, seen from tests and
/// examples); the folders of `PATH`. When `TEGULAC` is set, only there.
pub fn find() -> Result<PathBuf, CompileError> {
    if let Some(path) = env::var_os("TEGULAC").filter(|v| !v.is_empty()) {
        return check(path.into());
    }
    let name = format!("tegulac{}", env::consts::EXE_SUFFIX);
    let exe = env::current_exe().and_then(|p| p.canonicalize()).unwrap_or_default();
    let beside = exe.ancestors().skip(1).take(2).map(|dir| dir.join(&name)).collect::<Vec<_>>();
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(&name));
    match beside.iter().cloned().chain(on_path).find(|p| p.is_file()) {
        Some(found) => Ok(found),
        None => {
            let looked = beside.iter().map(|p| p.display().to_string()).chain(["the folders of PATH".into()]).collect();
            Err(CompileError::NotFound { looked })
        }
    }
}
