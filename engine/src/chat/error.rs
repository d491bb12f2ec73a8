//! Why a conversation could not be turned into a prompt.

/// What went wrong with a chat template.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    #[error("{file}: the model has no chat template (key `tokenizer.chat_template`): it only continues plain text")]
    NoTemplate { file: String },
    #[error("the chat template{} cannot be used: {why}", at(*line))]
    Broken { line: Option<usize>, why: String },
    #[error("the chat template{} fails on this conversation: {why}", at(*line))]
    Failed { line: Option<usize>, why: String },
    #[error("the chat template refuses this conversation: {0}")]
    Refused(String),
    #[error(transparent)]
    Gguf(#[from] crate::gguf::GgufError),
}

fn at(line: Option<usize>) -> String {
    line.map_or(String::new(), |line| format!(", line {line},"))
}
