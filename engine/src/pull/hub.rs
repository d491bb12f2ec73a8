//! Fetching a file from the Hugging Face Hub, or a server that speaks its protocol (`HF_ENDPOINT`), into the Hub's own
//! cache (`HF_HOME`), which other programs share. Interrupted downloads go on where they stopped. A private or gated
//! repository needs `HF_TOKEN`.

use std::env;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use hf_hub::api::sync::{ApiBuilder, ApiError};
use hf_hub::{Cache, Repo};
use indicatif::ProgressBar;

use super::cache;
use super::error::PullError;
use super::hash::Hasher;
use crate::progress;

/// A file on the Hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// `OWNER/NAME`.
    pub repository: String,
    /// The path inside the repository.
    pub file: String,
}

impl Name {
    /// From `OWNER/NAME/FILE`; `None` if a part is missing or would lead outside.
    pub fn parse(text: &str) -> Option<Name> {
        let mut parts = text.splitn(3, '/');
        let (owner, name, file) = (parts.next()?, parts.next()?, parts.next()?);
        let sound = |part: &str| !part.is_empty() && part != "." && part != "..";
        (sound(owner) && sound(name) && file.split('/').all(sound))
            .then(|| Name { repository: format!("{owner}/{name}"), file: file.to_owned() })
    }
}

/// A server and a cache folder.
#[derive(Debug)]
pub(super) struct Hub {
    pub endpoint: Option<String>,
    pub cache: PathBuf,
    pub token: Option<String>,
}

impl Hub {
    /// As the environment says: `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN`.
    pub(super) fn from_env() -> Result<Hub, PullError> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        // The library looks for the home folder too, but gives up on the spot without one.
        if set("HF_HOME").is_none() && set("HOME").is_none() {
            return Err(PullError::NoCacheDir);
        }
        let cache = Cache::from_env();
        let token = set("HF_TOKEN").or_else(|| cache.token());
        Ok(Hub { endpoint: set("HF_ENDPOINT"), cache: cache.path().clone(), token })
    }

    /// The file, if it is in the cache.
    pub(super) fn cached(&self, name: &Name) -> Option<PathBuf> {
        Cache::new(self.cache.clone()).model(name.repository.clone()).get(&name.file)
    }

    /// The file, downloaded if it is not in the cache.
    pub(super) fn fetch(&self, name: &Name) -> Result<PathBuf, PullError> {
        if let Some(path) = self.cached(name) {
            return Ok(path);
        }
        // One lock per file, held until it is there: a second process waits instead of failing.
        let folder = self.cache.join(Repo::model(name.repository.clone()).folder_name());
        let bar = progress::bytes(0, format!("fetching {}", name.file));
        let _lock =
            cache::lock(&folder.join(name.file.replace('/', "--")), || bar.set_message("another process fetches it"))?;
        if let Some(path) = self.cached(name) {
            return Ok(path);
        }
        let path = self.download(name, bar.clone());
        bar.finish_and_clear();
        let path = path.map_err(|error| PullError::Hub {
            name: format!("hf:{}/{}", name.repository, name.file),
            why: explain(&error, self.token.is_some()),
        })?;
        check(&path)?;
        Ok(path)
    }

    fn download(&self, name: &Name, bar: ProgressBar) -> Result<PathBuf, ApiError> {
        let mut builder = ApiBuilder::from_cache(Cache::new(self.cache.clone()))
            .with_token(self.token.clone())
            .with_retries(3)
            .with_progress(false);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
        }
        builder.build()?.model(name.repository.clone()).download_with_progress(&name.file, Bar(bar))
    }
}

/// Large files lie in the cache under their SHA-256, which is checked; small ones under a hash of another kind.
fn check(path: &PathBuf) -> Result<(), PullError> {
    let failed = |source| PullError::Io { path: path.clone(), doing: "reading", source };
    let blob = path.canonicalize().map_err(failed)?;
    let expected = blob.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if expected.len() != 64 || !expected.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }
    let mut hash = Hasher::default();
    io::copy(&mut File::open(&blob).map_err(failed)?, &mut hash).map_err(failed)?;
    let found = hash.hex();
    if found == expected {
        return Ok(());
    }
    for damaged in [path, &blob] {
        std::fs::remove_file(damaged).map_err(|source| PullError::Io {
            path: damaged.clone(),
            doing: "removing the damaged file",
            source,
        })?;
    }
    Err(PullError::Hash { file: path.clone(), found, expected })
}

fn explain(error: &ApiError, has_token: bool) -> String {
    let text = error.to_string();
    let says = |code: &str| text.contains(code);
    let advice = if says("404") {
        ". There is no such repository or file; check the spelling, capitals included"
    } else if (says("401") || says("403")) && has_token {
        ". The token does not allow it; ask for access on the repository's page"
    } else if says("401") || says("403") {
        ". The repository is private, gated or misspelt; with access, set HF_TOKEN"
    } else if says("No space left") {
        ". Free some space, or set HF_HOME to a folder on another disk"
    } else {
        ""
    };
    format!("{text}{advice}")
}

struct Bar(ProgressBar);

impl hf_hub::api::Progress for Bar {
    fn init(&mut self, size: usize, _: &str) {
        self.0.set_length(size as u64);
    }

    fn update(&mut self, size: usize) {
        self.0.inc(size as u64);
    }

    fn finish(&mut self) {}
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
