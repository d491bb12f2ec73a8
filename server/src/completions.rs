//! `/v1/completions`: texts or tokens go on.

use axum::extract::State;
use axum::response::Response;
use serde_json::Value;
use tegula_engine::tokenizer::Tokenizer;

use crate::error::ApiError;
use crate::fields::{Field, Fields, Raw, short};
use crate::generate::{Asked, Plan, check_tokens, generate};
use crate::limits;
use crate::prompt::{Control, Prompt};
use crate::sampling::{Kind, Sampling};
use crate::state::App;

/// The parameter that prompts come from.
const PROMPT: &str = "prompt";
/// Most prompts of a request.
const MOST_PROMPTS: usize = 1024;

/// Continues one prompt or several.
pub async fn completions(State(app): State<App>, asked: Asked, body: Raw) -> Response {
    generate(app, Kind::Completions, asked, body, plan).await
}

fn plan(app: &App, fields: &mut Fields) -> Result<Plan, ApiError> {
    let engine = app.engine()?;
    let tokenizer = engine.tokenizer();
    let given = given(fields.take(PROMPT)?)?;
    let add_special_tokens = fields.take::<bool>("add_special_tokens")?.unwrap_or(true);
    let echo = fields.take::<bool>("echo")?.unwrap_or(false);
    let sampling = Sampling::take(fields, Kind::Completions, echo, engine)?;
    let mut prompts = vec![];
    for given in given {
        let prompt = match given {
            Given::Text(text) => {
                if sampling.truncate.is_none() {
                    limits::check_text(app, PROMPT, &text)?;
                }
                let mut prompt = Prompt::of_text(tokenizer, &text, add_special_tokens);
                prompt.echo = echo.then_some(text);
                prompt
            }
            Given::Tokens(tokens) => {
                check_tokens(engine, PROMPT, &tokens)?;
                of_tokens(tokenizer, tokens, echo, sampling.params.skip_special_tokens)
            }
        };
        if prompt.tokens.is_empty() {
            let message = format!("{PROMPT}: it is empty; it must have one token or more");
            return Err(ApiError::param(PROMPT, message));
        }
        prompts.push(prompt);
    }
    Ok(Plan { prompts, prompt_name: PROMPT, sampling, tools: None })
}

fn of_tokens(tokenizer: &Tokenizer, tokens: Vec<u32>, echo: bool, skip_special_tokens: bool) -> Prompt {
    let control = if skip_special_tokens { Control::Hidden } else { Control::Shown };
    let mut prompt = Prompt { tokens, echo: None, control };
    prompt.echo = echo.then(|| prompt.text(tokenizer));
    prompt
}

/// A prompt as it was given.
#[derive(Debug, PartialEq)]
enum Given {
    Text(String),
    Tokens(Vec<u32>),
}

impl Field for Given {
    fn expected() -> String {
        "a text, or a list of tokens".into()
    }

    fn of(value: Value) -> Result<Given, Value> {
        match value {
            Value::String(text) => Ok(Given::Text(text)),
            other => Vec::of(other).map(Given::Tokens),
        }
    }
}

/// A text, a list of tokens, or a list of either.
fn given(value: Option<Value>) -> Result<Vec<Given>, ApiError> {
    let expected = "expected a text, a list of tokens, or a list of texts or of lists of tokens";
    let bad = |found: &str| ApiError::param(PROMPT, format!("{PROMPT}: {expected}, found {found}"));
    let all = match value {
        None => return Err(bad("nothing")),
        Some(Value::Array(items)) => match items.first() {
            None => return Err(bad("an empty list")),
            Some(first) if first.is_string() || first.is_array() => {
                let texts = first.is_string();
                if let Some(other) = items.iter().find(|item| item.is_string() != texts) {
                    return Err(bad(&format!("{} beside {}", short(other), short(first))));
                }
                if items.len() > MOST_PROMPTS {
                    return Err(bad(&format!("{} prompts; there may be {MOST_PROMPTS}", items.len())));
                }
                Vec::<Given>::of(Value::Array(items))
            }
            Some(_) => Given::of(Value::Array(items)).map(|one| vec![one]),
        },
        Some(one) => Given::of(one).map(|one| vec![one]),
    };
    all.map_err(|found| bad(&short(&found)))
}
