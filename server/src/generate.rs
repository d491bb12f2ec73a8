//! What all endpoints that generate do: from a body to an answer.
//!
//! ```text
//!  Fields ─ the endpoint's own ─▶ Plan ─ check, submit ─▶ Answer ─▶ whole, or events
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use tegula_engine::Engine;
use tegula_engine::engine::{Request, SubmitError};
use tegula_engine::sampling::unpredictable_seed;
use tegula_engine::schedule::AdmissionError;

use crate::error::ApiError;
use crate::fields::{Fields, Ignored, Raw};
use crate::prompt::{Prompt, check_room};
use crate::response::Shape;
use crate::run::{Run, Style};
use crate::sampling::{Kind, Sampling};
use crate::state::App;
use crate::stream::{Answer, StreamOptions};
use crate::tools::Tools;
use crate::{models, size};

/// Names a request: in the answer's id, in logs and in traces.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Most bytes of such a name.
const MOST_ID: usize = 256;

/// What a request says outside of its body. Taken before the body is read: times are counted from here.
#[derive(Clone, Debug)]
pub struct Asked {
    arrival: Instant,
    id: Option<String>,
    traceparent: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Asked, Self::Rejection> {
        let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let id = header("x-request-id").filter(|id| !id.is_empty());
        Ok(Asked { arrival: Instant::now(), id, traceparent: header("traceparent") })
    }
}

/// What an endpoint makes of a body.
pub struct Plan {
    /// At least one.
    pub prompts: Vec<Prompt>,
    /// The parameter that they come from.
    pub prompt_name: &'static str,
    /// How they are to be continued.
    pub sampling: Sampling,
    /// Which calls answers may have.
    pub tools: Option<Tools>,
}

/// How an endpoint makes a plan: it takes its own parameters.
pub type Planner = fn(&App, &mut Fields) -> Result<Plan, ApiError>;

/// Answers a request. The answer, be it an error, has the name that the request has: as it was given if it was.
pub async fn generate(app: App, kind: Kind, asked: Asked, body: Raw, planner: Planner) -> Response {
    let ping = app.config().ping_interval;
    let given = asked.id.clone().filter(|id| is_name(id));
    let prepared = app.blocking(move |app| {
        let mut fields = body.fields()?;
        let name = name(&mut fields, &asked)?;
        Ok((prepare(app, kind, &asked, &name, fields, planner), name))
    });
    let (prepared, name) = match prepared.await {
        Ok((prepared, name)) => (prepared, Some(name)),
        Err(error) => (Err(error), given),
    };
    let mut response = answered(prepared, ping).await.into_response();
    if let Some(Ok(name)) = name.map(|name| HeaderValue::from_str(&name)) {
        response.headers_mut().insert(REQUEST_ID, name);
    }
    response
}

/// An answer in the making, how it is streamed if it is, and what had no effect.
type Prepared = (Answer, Option<StreamOptions>, Ignored);

async fn answered(prepared: Result<Prepared, ApiError>, ping: Duration) -> Result<Response, ApiError> {
    let (answer, options, ignored) = prepared?;
    let response = match options {
        Some(options) => answer.events(options, ping),
        None => answer.whole().await?,
    };
    Ok((ignored, response).into_response())
}

/// Everything up to the engine.
fn prepare(
    app: &App,
    kind: Kind,
    asked: &Asked,
    name: &str,
    mut fields: Fields,
    planner: Planner,
) -> Result<Prepared, ApiError> {
    let engine = app.engine()?;
    models::check(app, fields.take::<String>("model")?.as_deref())?;
    let options = StreamOptions::take(&mut fields)?;
    let priority = fields.take::<i32>("priority")?.unwrap_or(0);
    let cache_salt = fields.take::<String>("cache_salt")?;
    if cache_salt.as_deref() == Some("") {
        let message = "cache_salt is empty; it must be one character or more, or unset";
        return Err(ApiError::param("cache_salt", message));
    }
    let token_ids = fields.take::<bool>("return_token_ids")?.unwrap_or(false);
    let tokens_as_ids = fields.take::<bool>("return_tokens_as_token_ids")?.unwrap_or(false);
    let Plan { mut prompts, prompt_name, sampling, tools } = planner(app, &mut fields)?;
    let ignored = fields.finish(app.config().strict_parameters)?;

    let prompt_only = sampling.prompt_only;
    let max_tokens = sampling.params.max_tokens;
    for prompt in &mut prompts {
        // A chat echoes the text that it goes on with.
        let echoes = prompt.echo.is_some() && kind == Kind::Completions;
        if prompt.truncate(sampling.truncate, engine, max_tokens) && echoes {
            prompt.echo = Some(prompt.text(engine.tokenizer()));
        }
        check_room(engine, (prompt_name, prompt.tokens.len()), (&sampling.most, max_tokens))?;
    }
    let visible = tools.as_ref().map_or(vec![], |tools| tools.visible(engine.tokenizer()));
    size::check(&prompts, &sampling, engine.config().max_model_len, token_ids)?;
    let style = Arc::new(Style {
        tokenizer: engine.tokenizer().clone(),
        n: sampling.params.n as usize,
        begins_alone: kind == Kind::Chat,
        logprobs: sampling.logprobs.is_some(),
        echo_logprobs: sampling.echo_logprobs.is_some(),
        prompt_logprobs: sampling.prompt_logprobs.is_some(),
        prompt_tokens: token_ids,
        prompt_only,
        skip_special_tokens: sampling.params.skip_special_tokens,
        tools,
    });
    let id = match kind {
        Kind::Completions => format!("cmpl-{name}"),
        Kind::Chat => format!("chatcmpl-{name}"),
        Kind::Inference => name.to_owned(),
    };
    let shape = Shape {
        kind,
        id: id.clone(),
        model: engine.name().to_owned(),
        created: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        tokenizer: engine.tokenizer().clone(),
        logprobs: sampling.logprobs,
        prompt_logprobs: sampling.prompt_logprobs,
        token_ids,
        tokens_as_ids,
    };
    let (num_prompts, n) = (prompts.len(), style.n);
    let request = |(place, prompt): (usize, &Prompt)| Request {
        form: sampling.form.as_ref().map(|(form, _)| form.clone()),
        visible: visible.clone(),
        priority,
        cache_salt: cache_salt.clone(),
        id: Some(if num_prompts > 1 { format!("{id}-{place}") } else { id.clone() }),
        arrival: asked.arrival,
        traceparent: asked.traceparent.clone(),
        ..Request::new(prompt.tokens.clone(), sampling.params.clone())
    };
    // The prompt's own log-probabilities are the engine's to say, the rest is known.
    let by_engine = !prompt_only || sampling.params.prompt_logprobs.is_some();
    let generations = match by_engine {
        true => engine.generate_all(prompts.iter().enumerate().map(request)),
        false => Ok(vec![]),
    };
    let mut generations = generations.map_err(|error| refused(error, prompt_name, &sampling))?.into_iter();
    let run = |(place, prompt)| Run::new(style.clone(), prompt, generations.next(), place * n);
    let runs = prompts.into_iter().enumerate().map(run).collect();
    Ok((Answer::new(runs, num_prompts * n, shape), options, ignored))
}

/// What the engine did not take, under the names that the request has for it.
fn refused(error: SubmitError, prompt_name: &str, sampling: &Sampling) -> ApiError {
    match error {
        SubmitError::Admission(AdmissionError::EmptyPrompt) | SubmitError::Token { .. } => {
            ApiError::param(prompt_name, format!("{prompt_name}: {error}"))
        }
        SubmitError::Grammar(error) => match &sampling.form {
            Some((_, param)) => ApiError::param(param, format!("{param}: {error}")),
            None => ApiError::bad_request(error.to_string()),
        },
        other => {
            let mut error = ApiError::from(other);
            if error.param.as_deref() == Some("prompt") {
                error.param = Some(prompt_name.to_owned());
            }
            error
        }
    }
}

/// The name that a request has, or one that no other has.
fn name(fields: &mut Fields, asked: &Asked) -> Result<String, ApiError> {
    let own = fields.take::<String>("request_id")?;
    let (name, from) = match (&asked.id, own) {
        (Some(name), _) => (name.clone(), "x-request-id"),
        (None, Some(name)) => (name, "request_id"),
        (None, None) => return Ok(format!("{:016x}{:016x}", unpredictable_seed(), unpredictable_seed())),
    };
    if !is_name(&name) {
        let message = format!("{from}: it must be a text of 1 to {MOST_ID} bytes, without control characters");
        return Err(ApiError::param(from, message));
    }
    Ok(name)
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MOST_ID && !text.chars().any(char::is_control)
}

/// Tokens of prompts are the model's.
///
/// # Errors
/// 400 for the first that is none.
pub fn check_tokens(engine: &Engine, name: &str, tokens: &[u32]) -> Result<(), ApiError> {
    let size = engine.limits().vocab_size;
    match tokens.iter().position(|token| *token as usize >= size) {
        None => Ok(()),
        Some(place) => {
            let message = format!(
                "{name}: token {} at place {place} is none of the model's, which are 0 to {}",
                tokens[place],
                size - 1
            );
            Err(ApiError::param(name, message))
        }
    }
}
