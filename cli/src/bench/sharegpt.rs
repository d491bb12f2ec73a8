//! ShareGPT's conversations: the first question of each is the prompt, and its answer says how long an answer is.

use std::path::Path;

use serde_json::Value;
use tegula_engine::Error;
use tegula_engine::tokenizer::{Special, Tokenizer};

use super::dataset::{Sample, read_text};

/// Shorter ones say nothing about speed, longer ones are left out as `vllm bench` leaves them out.
const SHORTEST: usize = 4;
const LONGEST_PROMPT: usize = 1024;
const LONGEST: usize = 2048;

/// The conversations of the file that can be used, in its order. Without a length of answers, and for lengths of prompts,
/// the tokenizer counts.
pub(super) fn read(path: &Path, output: Option<usize>, tokenizer: Option<&Tokenizer>) -> Result<Vec<Sample>, Error> {
    let wrong = |what: &str| Error::Usage(format!("{}: {what}", path.display()));
    let text = read_text(path)?;
    let all: Vec<Value> =
        serde_json::from_str(&text).map_err(|e| wrong(&format!("expected a list of conversations in JSON: {e}")))?;
    if output.is_none() && tokenizer.is_none() {
        return Err(Error::Usage(
            "--sharegpt-output-len: say how long answers are, or name a --tokenizer to count those of the file"
                .to_owned(),
        ));
    }
    let count = |text: &str| tokenizer.map(|t| t.encode(text, Special::AsText)).unwrap_or_default();
    let sample = |conversation: &Value| {
        let turn = |i: usize| conversation.get("conversations")?.get(i)?.get("value")?.as_str();
        let (prompt, answer) = (turn(0)?, turn(1)?);
        let tokens = count(prompt);
        let length = output.unwrap_or_else(|| count(answer).len());
        let usable = tokenizer.is_none()
            || (tokens.len() >= SHORTEST
                && tokens.len() <= LONGEST_PROMPT
                && tokens.len() + length <= LONGEST
                && (output.is_some() || length >= SHORTEST));
        usable.then(|| Sample { prompt: prompt.to_owned(), tokens, output: length })
    };
    Ok(all.iter().filter_map(sample).collect())
}
