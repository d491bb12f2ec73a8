//! `/tokenize` and `/detokenize`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tegula_engine::tokenizer::Tokenizer;

use crate::error::ApiError;
use crate::fields::{Fields, Raw};
use crate::prompt::Prompt;
use crate::sampling::refuse_unsupported;
use crate::state::App;
use crate::{chat_prompt, limits, models};

/// Most bytes of a text that tokens make.
const MOST_TEXT: usize = 32 << 20;

/// Tokens of a text or of a conversation. As vLLM has it: `add_special_tokens` is true for a text unless it says otherwise.
pub async fn tokenize(State(app): State<App>, body: Raw) -> Result<Response, ApiError> {
    app.blocking(|app| tokenized(app, body.fields()?)).await
}

/// The text of tokens, names of control tokens included; bytes that are not UTF-8 are U+FFFD.
pub async fn detokenize(State(app): State<App>, body: Raw) -> Result<Response, ApiError> {
    app.blocking(|app| detokenized(app, body.fields()?)).await
}

fn tokenized(app: &App, mut fields: Fields) -> Result<Response, ApiError> {
    models::check(app, fields.take::<String>("model")?.as_deref())?;
    refuse_unsupported(&mut fields)?;
    let engine = app.engine()?;
    let with_texts = fields.take::<bool>("return_token_strs")?.unwrap_or(false);
    let source = if fields.has("messages") {
        if fields.has("prompt") {
            return Err(ApiError::param("prompt", "prompt: either this or messages, not both"));
        }
        Source::Chat(chat_prompt::parse(app, &mut fields)?)
    } else {
        let text = fields.require::<String>("prompt")?;
        Source::Text(text, fields.take("add_special_tokens")?.unwrap_or(true))
    };
    let ignored = fields.finish(app.config().strict_parameters)?;
    let tokens = match source {
        Source::Text(text, add_special_tokens) => {
            limits::check_text(app, "prompt", &text)?;
            Prompt::of_text(engine.tokenizer(), &text, add_special_tokens).tokens
        }
        Source::Chat(prompt) => {
            prompt.check_length(app)?;
            prompt.tokens(app)?
        }
    };
    let text = |token: &u32| String::from_utf8_lossy(engine.tokenizer().token_bytes(*token)).into_owned();
    let answer = json!({
        "count": tokens.len(),
        "max_model_len": engine.config().max_model_len,
        "tokens": tokens,
        "token_strs": with_texts.then(|| tokens.iter().map(text).collect::<Vec<_>>()),
    });
    Ok((ignored, Json(answer)).into_response())
}

/// What is to be tokens.
enum Source {
    /// And whether a token is put in front if the model wants one.
    Text(String, bool),
    Chat(chat_prompt::ChatPrompt),
}

fn detokenized(app: &App, mut fields: Fields) -> Result<Response, ApiError> {
    models::check(app, fields.take::<String>("model")?.as_deref())?;
    refuse_unsupported(&mut fields)?;
    let tokens = fields.require::<Vec<u32>>("tokens")?;
    let ignored = fields.finish(app.config().strict_parameters)?;
    let text = text_of(app.engine()?.tokenizer(), &tokens)?;
    Ok((ignored, Json(json!({ "prompt": text }))).into_response())
}

fn text_of(tokenizer: &Tokenizer, tokens: &[u32]) -> Result<String, ApiError> {
    let mut bytes = vec![];
    for (place, &token) in tokens.iter().enumerate() {
        if tokenizer.kind(token).is_none() {
            let last = tokenizer.vocab_size() - 1;
            let message = format!("tokens: {token} at place {place} is none; the vocabulary has tokens 0 to {last}");
            return Err(ApiError::param("tokens", message));
        }
        bytes.extend_from_slice(tokenizer.token_bytes(token));
        if bytes.len() > MOST_TEXT {
            let message =
                format!("tokens: their text is longer than {MOST_TEXT} bytes, the most it may be: send fewer at once");
            return Err(ApiError::param("tokens", message));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
