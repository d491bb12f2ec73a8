//! `/v1/chat/completions`: the model answers in a conversation.

use axum::extract::State;
use axum::response::Response;

use crate::chat_prompt;
use crate::error::ApiError;
use crate::fields::{Fields, Raw};
use crate::generate::{Asked, Plan, generate};
use crate::prompt::{Control, Prompt};
use crate::sampling::{Kind, Sampling};
use crate::state::App;

/// Answers a conversation.
pub async fn chat(State(app): State<App>, asked: Asked, body: Raw) -> Response {
    generate(app, Kind::Chat, asked, body, plan).await
}

fn plan(app: &App, fields: &mut Fields) -> Result<Plan, ApiError> {
    let engine = app.engine()?;
    let tokenizer = engine.tokenizer();
    let chat = chat_prompt::parse(app, fields)?;
    let echo = match chat.continued() {
        Some(text) => fields.take("echo")?.and_then(|echo: bool| echo.then(|| text.to_owned())),
        None => {
            let why = "a chat echoes what continue_final_message goes on with, and that is not set";
            fields.reject_unless("echo", why, |echo| *echo == false)?;
            None
        }
    };
    let mut sampling = Sampling::take(fields, Kind::Chat, false, engine)?;
    if let Some(form) = chat.tools.form(tokenizer) {
        if let Some((_, param)) = &sampling.form {
            let message = format!("{param}: the answer's form is that of calls, by tool_choice; leave one of them out");
            return Err(ApiError::param(param, message));
        }
        sampling.form = Some((form, "tools".into()));
    }
    if sampling.truncate.is_none() {
        chat.check_length(app)?;
    }
    let prompt = Prompt { tokens: chat.tokens(app)?, echo, control: Control::Shown };
    Ok(Plan { prompts: vec![prompt], prompt_name: "messages", sampling, tools: Some(chat.tools) })
}
