//! Why a conversation could not be turned into a prompt.

use std::fmt;
use std::path::PathBuf;

/// What went wrong with a chat template.
#[derive(thiserror::Error)]
pub enum ChatError {
    #[error("{file}: the model has no chat template (key `tokenizer.chat_template`): it only continues plain text")]
    NoTemplate { file: String },
    #[error("{}the chat template{} cannot be used: {why}", of(file), at(*line))]
    Broken { file: Option<PathBuf>, line: Option<usize>, why: String },
    #[error("{}the chat template{} fails on this conversation: {why}", of(file), at(*line))]
    Failed { file: Option<PathBuf>, line: Option<usize>, why: String },
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    #[error("the last message cannot be continued: {0}")]
    Continue(&'static str),
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
}

/// As [`fmt::Display`]: a `main` that returns a `Result` shows it so.
impl fmt::Debug for ChatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The file that a template comes from, if it comes from one.
fn of(file: &Option<PathBuf>) -> String {
    file.as_ref().map_or(String::new(), |file| format!("{}: ", file.display()))
}

fn at(line: Option<usize>) -> String {
    line.map_or(String::new(), |line| format!(", line {line},"))
}
