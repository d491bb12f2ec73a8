//! What can go wrong before a launch: text that is not PTX, or PTX that the emulator does not know.

/// A fault in PTX text, found while parsing or decoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct Error {
    /// Line in the PTX text, from 1; 0 where no line is to blame.
    pub line: u32,
    /// What was found and what would be right.
    pub message: String,
}

impl Error {
    /// An error at `line`.
    pub fn new(line: u32, message: impl Into<String>) -> Error {
        Error { line, message: message.into() }
    }
}
