//! How large an answer may become: what a small request can ask for is much.

use crate::error::ApiError;
use crate::prompt::Prompt;
use crate::sampling::Sampling;

/// Most answers to a request, to all its prompts.
const MOST_ANSWERS: usize = 1024;
/// Most log-probabilities of an answer: of all its choices, those of prompts included. As JSON they have about 60 bytes each.
const MOST_LOGPROBS: usize = 2 << 20;
/// Most bytes that an answer's choices repeat of their prompts, as texts and as tokens.
const MOST_REPEATED: usize = 64 << 20;
/// A token in a list, as JSON.
const TOKEN_BYTES: usize = 6;

/// That an answer, as far as it can be known before, is not too large. Neither as a stream: who does not read it has it
/// wait here.
///
/// # Errors
/// 400 with what would be too much.
pub fn check(prompts: &[Prompt], sampling: &Sampling, context: usize, token_ids: bool) -> Result<(), ApiError> {
    let n = sampling.params.n as usize;
    if prompts.len() * n > MOST_ANSWERS {
        let prompts = prompts.len();
        let message = format!("n is {n}, to each of {prompts} prompts; there may be {MOST_ANSWERS} answers in all");
        return Err(ApiError::param("n", message));
    }
    // The chosen one comes with its alternatives.
    let each = |wanted: Option<usize>| wanted.map_or(0, |top| top + 1);
    let of_prompt = each(sampling.prompt_logprobs) + each(sampling.echo_logprobs);
    let of_answer = each(sampling.logprobs);
    let (mut logprobs, mut repeated) = (0usize, 0usize);
    for prompt in prompts {
        let room = context.saturating_sub(prompt.tokens.len());
        let most = sampling.params.max_tokens.map_or(room, |most| most.min(room));
        logprobs = logprobs.saturating_add(n * (prompt.tokens.len() * of_prompt + most * of_answer));
        let ids = if token_ids { prompt.tokens.len() * TOKEN_BYTES } else { 0 };
        repeated = repeated.saturating_add(n * (prompt.echo.as_ref().map_or(0, String::len) + ids));
    }
    if logprobs > MOST_LOGPROBS {
        let message = format!(
            "the answer would have up to {logprobs} log-probabilities; it may have {MOST_LOGPROBS}: ask for fewer \
             alternatives, tokens or answers"
        );
        let param = if sampling.prompt_logprobs.is_some() { "prompt_logprobs" } else { &*sampling.logprobs_name };
        return Err(ApiError::param(param, message));
    }
    if repeated > MOST_REPEATED {
        let message = format!(
            "n is {n}: the answers would repeat {repeated} bytes of their prompts; they may repeat {MOST_REPEATED}"
        );
        return Err(ApiError::param("n", message));
    }
    Ok(())
}
