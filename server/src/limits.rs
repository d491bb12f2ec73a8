//! Limits of prompts that are checked before any work is done for them.

use crate::error::ApiError;
use crate::state::App;

/// That a text is not too long for any sequence, whatever its tokens will be: each stands for at most as many bytes as
/// the longest token has. What passes may still be too long, which the engine says.
///
/// # Errors
/// 400 about `param` if it is.
pub fn check_text(app: &App, param: &str, text: &str) -> Result<(), ApiError> {
    check_bytes(app, param, text.len())
}

/// The same of texts that have so many bytes together.
///
/// # Errors
/// 400 about `param` if they are too long.
pub fn check_bytes(app: &App, param: &str, bytes: usize) -> Result<(), ApiError> {
    let most = app.engine()?.config().max_model_len;
    let least = bytes.div_ceil(app.longest_token()?);
    if least <= most {
        return Ok(());
    }
    let message = format!("the maximum context length is {most} tokens; the prompt has at least {least}");
    Err(ApiError::param(param, message))
}
