//! What is kept of a failed step: the scheduler as it was, and all events since, so that the plan that failed can be made
//! again, and run again.
//!
//! A log is a JSON file. It contains the prompts and answers of its time, so only its owner may read it, and one is
//! written only when a step fails.

use std::fs::{DirBuilder, File, OpenOptions, read_dir};
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::schedule::Log;

/// Logs that an engine writes at most: steps that fail one after the other fail alike, and disks are finite.
const MOST: usize = 8;

/// Logs that a folder has at most, whoever wrote them: a server that is started again and again writes no more.
const MOST_OF_FOLDER: usize = 64;

/// Bytes of a log: an engine whose queue is full of long prompts would write gigabytes.
const MOST_BYTES: usize = 256 << 20;

/// A failed step, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultLog {
    /// What went wrong.
    pub error: String,
    /// The step.
    pub step: u64,
    /// The model that ran it: [`ModelInfo::identity`](super::ModelInfo).
    pub model: String,
    /// What led to it. [`Log::replay`] plans it again.
    pub log: Log,
}

impl FaultLog {
    /// Reads a log.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn read(path: impl AsRef<Path>) -> io::Result<FaultLog> {
        let file = BufReader::new(File::open(path)?);
        serde_json::from_reader(file).map_err(io::Error::from)
    }
}

/// Writes logs into a folder: on a thread of their own, since disks are slow and other requests wait. It is there from the
/// first log on, and ends when this is dropped, with all logs written.
#[derive(Debug)]
pub struct FaultLogs {
    folder: Option<PathBuf>,
    model: String,
    written: usize,
    writer: Option<(Sender<FaultLog>, JoinHandle<()>)>,
}

impl FaultLogs {
    /// Into this folder, which is made when there is something to write; nowhere without one.
    pub fn new(folder: Option<PathBuf>, model: &str) -> FaultLogs {
        FaultLogs { folder, model: model.to_owned(), written: 0, writer: None }
    }

    /// Has a log written. That it cannot be is said, and ends nothing.
    pub fn write(&mut self, step: u64, error: &str, log: &Log) {
        let Some(folder) = &self.folder else { return };
        if self.written >= MOST {
            return;
        }
        self.written += 1;
        if self.writer.is_none() {
            let (logs, received) = channel();
            let folder = folder.clone();
            let thread = std::thread::Builder::new().name("tegula-fault-log".into());
            match thread.spawn(move || received.iter().for_each(|log| write_into(&folder, &log))) {
                Ok(thread) => self.writer = Some((logs, thread)),
                Err(error) => return tracing::warn!("there is no thread to write a log: {error}"),
            }
        }
        let log = FaultLog { error: error.to_owned(), step, model: self.model.clone(), log: log.clone() };
        if let Some((logs, _)) = &self.writer {
            // A thread that has panicked has said so.
            let _ = logs.send(log);
        }
    }
}

impl Drop for FaultLogs {
    fn drop(&mut self) {
        if let Some((logs, thread)) = self.writer.take() {
            drop(logs);
            let _ = thread.join();
        }
    }
}

fn write_into(folder: &Path, log: &FaultLog) {
    let (time, step) = (SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis()), log.step);
    let path = folder.join(format!("fault-{time}-step-{step}.json"));
    match write(&path, log) {
        Ok(()) => tracing::error!("what led to the failure of step {step}, prompts included, is in {}", path.display()),
        Err(error) => tracing::warn!("{} could not be written: {error}", path.display()),
    }
}

fn write(path: &Path, log: &FaultLog) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(folder)?;
        let is_log = |name: &str| name.starts_with("fault-") && name.ends_with(".json");
        let logs = read_dir(folder)?.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_log)).count();
        if logs >= MOST_OF_FOLDER {
            return Err(io::Error::other(format!("there are {logs} logs already; delete those that nobody wants")));
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = BufWriter::new(Limited { file: options.open(path)?, left: MOST_BYTES });
    let written = serde_json::to_writer(&mut file, log).map_err(io::Error::from).and_then(|()| file.flush());
    if written.is_err() {
        // Half a log is none. What is still buffered is dropped with it.
        drop(file.into_parts());
        let _ = std::fs::remove_file(path);
    }
    written
}

/// A file that does not grow for ever.
struct Limited {
    file: File,
    left: usize,
}

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            return Err(io::Error::other(format!("it would have more than {MOST_BYTES} bytes")));
        }
        let written = self.file.write(bytes)?;
        self.left -= written;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
