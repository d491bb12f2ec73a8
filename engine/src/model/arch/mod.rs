//! Architectures: one short file each says how a GGUF file spells a decoder. To add one, add its file and a line here.

mod llama;

use super::Config;
use crate::gguf::{Gguf, GgufError, Problem};

/// An architecture: how to read a configuration, and what its tensors are called.
pub struct Architecture {
    /// GGUF's name, `general.architecture`.
    pub name: &'static str,
    /// Reads the dimensions.
    pub config: fn(&Gguf) -> Result<Config, GgufError>,
}

/// Every architecture that can be run.
pub const ALL: &[Architecture] = &[llama::ARCHITECTURE];

/// The architecture of a file.
pub fn of(file: &Gguf) -> Result<&'static Architecture, GgufError> {
    const KEY: &str = "general.architecture";
    let name: &str = file.require(KEY)?;
    ALL.iter().find(|a| a.name == name).ok_or_else(|| {
        let why = format!("`{name}` is not an architecture that can be run; known: {}", names());
        file.key_error(KEY, Problem::KeyValue(why))
    })
}

/// The names of all that can be run.
pub fn names() -> String {
    ALL.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")
}

/// A count that must be at least 1 and sensible.
pub(super) fn count(file: &Gguf, key: &str) -> Result<usize, GgufError> {
    let v: u64 = file.require(key)?;
    if (1..=1 << 24).contains(&v) {
        Ok(v as usize)
    } else {
        Err(file.key_error(key, Problem::KeyValue(format!("{v} is out of range: 1 to {}", 1u64 << 24))))
    }
}

/// A float for which `right` holds; `expected` says what that is.
pub(super) fn float(
    file: &Gguf,
    key: &str,
    right: impl Fn(f32) -> bool,
    expected: &str,
) -> Result<Option<f32>, GgufError> {
    match file.get::<f32>(key)? {
        Some(v) if !right(v) => {
            Err(file.key_error(key, Problem::KeyValue(format!("{v} where {expected} is expected"))))
        }
        v => Ok(v),
    }
}
