//! What can be wrong with a GGUF file: every error names the file, the place in it (header, key or tensor), what was
//! found there and what would be right.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::types::GgmlType;

/// A GGUF file that cannot be used, and why.
#[derive(thiserror::Error)]
#[error("{}: {place}{problem}", file.display())]
pub struct GgufError {
    /// The file, as it was named when it was opened.
    pub file: PathBuf,
    /// The part of the file the problem is in.
    pub place: Place,
    /// What is wrong.
    pub problem: Problem,
}

/// As [`fmt::Display`]: a `main` that returns a `Result` shows it so.
impl fmt::Debug for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The part of a GGUF file an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole, or its fixed-size header.
    File,
    /// The n-th metadata entry, counted from 0, whose name could not be read.
    Entry(u64),
    /// A metadata entry by name.
    Key(String),
    /// The n-th row of the tensor table, counted from 0, whose name could not be read.
    Row(u64),
    /// A tensor by name.
    Tensor(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File => Ok(()),
            Place::Entry(n) => write!(f, "metadata entry {n}: "),
            Place::Key(key) => write!(f, "key `{}`: ", Clipped(key)),
            Place::Row(n) => write!(f, "tensor {n} of the table: "),
            Place::Tensor(name) => write!(f, "tensor `{}`: ", Clipped(name)),
        }
    }
}

/// A name from a file that may be damaged: shown in one line and at bounded length.
struct Clipped<'a>(&'a str);

impl fmt::Display for Clipped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        for c in self.0.chars().take(MOST) {
            write!(f, "{}", c.escape_debug())?;
        }
        if self.0.chars().nth(MOST).is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// What is wrong at a [`Place`].
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    #[error("cannot be read: {0}")]
    Io(io::Error),
    #[error(
        "the file ends too early: {needs} bytes are needed at byte {at}, {has} are left. \
         It is probably an incomplete download; fetch it again"
    )]
    Truncated { at: u64, needs: u64, has: u64 },
    #[error("the file has been cut short since it was opened; perhaps it is being downloaded again")]
    Cut,
    #[error("nothing reads it{}: its model is of another kind than `general.architecture` says, or has more layers", nor(*.others))]
    Unread { others: usize },
    #[error("not a GGUF file: it starts with \"{}\" where a GGUF file starts with \"GGUF\"", found.escape_ascii())]
    Magic { found: [u8; 4] },
    #[error("GGUF version {found}; versions 2 and 3 can be read")]
    Version { found: u32 },
    #[error("a big-endian GGUF file; only little-endian files can be read")]
    BigEndian,
    #[error("{found} {what} are declared, but the rest of the file has room for at most {most}")]
    Count { what: &'static str, found: u64, most: u64 },
    #[error("{what} is not valid UTF-8")]
    NotUtf8 { what: &'static str },
    #[error("appears twice; names must be unique")]
    Duplicate,
    #[error("unknown value type {found}; GGUF has types 0 to 12")]
    ValueType { found: u32 },
    #[error("{found} where a bool is 0 or 1")]
    Bool { found: u8 },
    #[error("an array of arrays; arrays of numbers, bools or strings can be read")]
    NestedArray,
    #[error("alignment {found}; it must be a power of two of at least 8")]
    Alignment { found: u64 },
    #[error("{found} dimensions; a tensor has 1 to 4")]
    Dimensions { found: u32 },
    #[error("impossible extents {shape:?}; each must be at least 1 and their product below 2^63")]
    Extents { shape: Vec<u64> },
    #[error("unknown tensor type {found}; known are {}", GgmlType::names())]
    TensorType { found: u32 },
    #[error("rows of {extent} elements cannot be stored as {ty}, whose blocks hold {} elements each", ty.block_len())]
    Row { ty: GgmlType, extent: u64 },
    #[error("its data starts at offset {offset}, which is not a multiple of the file's alignment {alignment}")]
    Misaligned { offset: u64, alignment: u64 },
    #[error("its data, {bytes} bytes from offset {offset}, ends outside the file's data section of {section} bytes")]
    Outside { offset: u64, bytes: u64, section: u64 },
    #[error("its data overlaps that of tensor `{other}`")]
    Overlap { other: String },
    #[error("missing from the metadata")]
    MissingKey,
    #[error("holds {found}; expected {expected}")]
    KeyType { expected: &'static str, found: String },
    #[error("{0}")]
    KeyValue(String),
    #[error("missing from the file, which has {count} tensors")]
    MissingTensor { count: usize },
    #[error("has shape {found:?}; expected {expected:?} (innermost extent first)")]
    Shape { expected: Vec<u64>, found: Vec<u64> },
    #[error("has type {ty}, which is known but not supported; supported are {}", GgmlType::supported_names())]
    Unsupported { ty: GgmlType },
}

fn nor(others: usize) -> String {
    if others == 0 { String::new() } else { format!(", nor {others} more") }
}
