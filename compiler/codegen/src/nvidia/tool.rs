//! Finding NVIDIA's tools and running them, on files without names: nothing is left behind, however this process ends.

use super::Error;
use std::{
    env,
    fs::File,
    io::{self, Read, Seek, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tegula_ir::protocol::NO_TOOL;

/// Where a tool is: what the variable names, for ptxas; then the folder that `./x setup --nvidia` fills; then the path.
///
/// # Errors
/// It is nowhere; the message says how to get it.
pub fn find(tool: &'static str) -> Result<PathBuf, Error> {
    let missing = |message| Error { tool, message, loc: None };
    let named = env::var_os("TEGULA_PTXAS").filter(|name| !name.is_empty());
    if let Some(named) = &named {
        // nvdisasm lies beside it.
        let file = if tool == "ptxas" { named.into() } else { Path::new(named).with_file_name(tool) };
        if let Some(found) = program(&file) {
            return Ok(found);
        }
        if tool == "ptxas" {
            let name = Path::new(named).display();
            return Err(missing(format!("{NO_TOOL} where TEGULA_PTXAS says: {name} is no file")));
        }
    }
    let ours = folder().map(|dir| dir.join("bin").join(tool)).filter(|file| file.is_file());
    ours.or_else(|| program(Path::new(tool))).ok_or_else(|| {
        let also = if tool == "ptxas" { ", or TEGULA_PTXAS names one" } else { "" };
        missing(format!("{NO_TOOL}: there is no {tool}. `./x setup --nvidia` gets it{also}"))
    })
}

/// The folder of `./x setup --nvidia`: `tegula/nvidia` in the user's cache folder.
fn folder() -> Option<PathBuf> {
    let var = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("tegula").join("nvidia"))
}

/// A file, or a bare name on the path.
fn program(file: &Path) -> Option<PathBuf> {
    if file.components().count() > 1 {
        return file.is_file().then(|| file.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|dir| dir.join(file)).find(|f| f.is_file())
}

/// What a tool gave.
pub struct Output {
    /// Whether it succeeded.
    pub ok: bool,
    /// Its output.
    pub bytes: Vec<u8>,
    /// What it said on standard error.
    pub said: String,
}

/// Runs a tool that reads `/dev/stdin` and writes `/dev/stdout`, both of which are files: it may seek in them.
///
/// # Errors
/// It is missing or cannot be run.
pub fn run(tool: &'static str, args: &[&str], input: &[u8]) -> Result<Output, Error> {
    let file = find(tool)?;
    let failed = |what: &str, e: io::Error| Error { tool, message: format!("cannot {what}: {e}"), loc: None };
    let temporary = || tempfile::tempfile().map_err(|e| failed("make a temporary file (TMPDIR chooses where)", e));
    let (mut from, mut to) = (temporary()?, temporary()?);
    let wrote = from.write_all(input).and_then(|()| from.rewind());
    wrote.map_err(|e| failed("write a temporary file", e))?;
    let handle = |file: &File| file.try_clone().map(Stdio::from).map_err(|e| failed("share a temporary file", e));
    let mut command = Command::new(&file);
    command.args(args).stdin(from).stdout(handle(&to)?).stderr(Stdio::piped());
    // SAFETY: one system call, which allocates nothing: the tool ends when this process is killed.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let run = command.output().map_err(|e| failed(&format!("run {}", file.display()), e))?;
    let mut bytes = vec![];
    to.rewind().and_then(|()| to.read_to_end(&mut bytes)).map_err(|e| failed("read what it made", e))?;
    let mut said = String::from_utf8_lossy(&run.stderr).into_owned();
    if !run.status.success() && said.trim().is_empty() {
        said = format!("it ended with {}", run.status);
    }
    Ok(Output { ok: run.status.success(), bytes, said })
}
