//! `/inference/v1/generate`: tokens in, tokens out, as a router that tokenises itself wants it.

use axum::extract::State;
use axum::response::Response;

use crate::error::ApiError;
use crate::fields::{Fields, Raw};
use crate::generate::{Asked, Plan, check_tokens, generate};
use crate::prompt::{Control, Prompt};
use crate::sampling::{Kind, Sampling, refuse_unsupported};
use crate::state::App;

/// The parameter that the prompt comes from.
const PROMPT: &str = "token_ids";

/// Continues a prompt of tokens.
pub async fn inference(State(app): State<App>, asked: Asked, body: Raw) -> Response {
    generate(app, Kind::Inference, asked, body, plan).await
}

fn plan(app: &App, fields: &mut Fields) -> Result<Plan, ApiError> {
    let engine = app.engine()?;
    let tokens: Vec<u32> = fields.require(PROMPT)?;
    if tokens.is_empty() {
        return Err(ApiError::param(PROMPT, format!("{PROMPT}: it is empty; it must have one token or more")));
    }
    check_tokens(engine, PROMPT, &tokens)?;
    refuse_unsupported(fields)?;
    let mut inner = match fields.take_object("sampling_params")? {
        Some(inner) => inner,
        None => Fields::parse(b"{}")?,
    };
    // Answers are tokens in any case; their text is needed to find stop strings.
    inner.accept("detokenize");
    let sampling = Sampling::take(&mut inner, Kind::Inference, false, engine)?;
    fields.finished(inner);
    let prompt = Prompt { tokens, echo: None, control: Control::Hidden };
    Ok(Plan { prompts: vec![prompt], prompt_name: PROMPT, sampling, tools: None })
}
