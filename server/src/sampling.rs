//! Sampling parameters: from a request's fields, for all endpoints.

mod form;

use serde_json::Value;
use tegula_engine::Engine;
use tegula_engine::grammar::Form;
use tegula_engine::sampling::{ParamError, SamplingParams, bad_word_sequences, logit_bias_from_json};

use crate::error::ApiError;
use crate::fields::{Field, Fields, OneOrMany, short};
use crate::prompt::Truncate;

/// Which endpoint asks: they differ in names and defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
    /// `/inference/v1/generate`, whose parameters are within `sampling_params`.
    Inference,
}

/// How a prompt is to be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Checked.
    pub params: SamplingParams,
    /// The form of answers, and the parameter that it comes from.
    pub form: Option<(Form, String)>,
    /// The parameter that `params.max_tokens` comes from.
    pub most: String,
    /// The parameter that `logprobs` comes from.
    pub logprobs_name: String,
    /// The answer's tokens are not wanted: the prompt is.
    pub prompt_only: bool,
    /// Alternatives to show of the answer's tokens, and of the prompt's as `prompt_logprobs`, and where it is echoed.
    pub logprobs: Option<usize>,
    pub prompt_logprobs: Option<usize>,
    pub echo_logprobs: Option<usize>,
    /// How much of the prompt to keep.
    pub truncate: Option<Truncate>,
}

/// Parameters that are known elsewhere, would change the answer, and have no effect here: with the values that change
/// nothing.
const UNSUPPORTED: &[(&str, fn(&Value) -> bool)] = &[
    ("use_beam_search", |v| *v == false),
    ("best_of", |v| v.as_f64() == Some(1.0)),
    ("length_penalty", |v| v.as_f64() == Some(1.0)),
    ("early_stopping", |v| *v == false),
    ("suffix", |v| *v == ""),
    ("prompt_embeds", never),
    ("documents", is_empty),
    ("chat_template", never),
    ("functions", is_empty),
    ("function_call", |v| *v == "none"),
    ("modalities", |v| v.as_array().is_some_and(|list| list.iter().all(|kind| kind == "text"))),
    ("audio", never),
    ("thinking_token_budget", never),
    ("kv_transfer_params", is_empty),
    ("repetition_detection", never),
    ("logits_processors", is_empty),
    ("vllm_xargs", is_empty),
    ("extra_args", is_empty),
    ("features", is_empty),
];

fn never(_: &Value) -> bool {
    false
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(|object| object.is_empty())
}

/// Refuses parameters that would change the answer and have no effect here.
///
/// # Errors
/// 400 with the name of the first.
pub fn refuse_unsupported(fields: &mut Fields) -> Result<(), ApiError> {
    UNSUPPORTED.iter().try_for_each(|(name, neutral)| fields.reject_unless(name, "it is not supported here", neutral))
}

impl Sampling {
    /// Takes all parameters that say how tokens are chosen and where answers end. With `echo` answers begin with their
    /// prompt.
    ///
    /// # Errors
    /// 400 for the first that has a wrong type or is out of bounds.
    pub fn take(fields: &mut Fields, kind: Kind, echo: bool, engine: &Engine) -> Result<Sampling, ApiError> {
        let prefix = if kind == Kind::Inference { "sampling_params." } else { "" };
        let refuse = |error: ParamError| ApiError::param(format!("{prefix}{}", error.field), error.to_string());
        refuse_unsupported(fields)?;
        let (mut max_tokens, most) = max_tokens(fields, kind)?;
        let prompt_only = echo && max_tokens == Some(0);
        if prompt_only {
            // The engine says one token at least; it is left out.
            max_tokens = Some(1);
        }
        let (logprobs, logprobs_name) = logprobs(fields, kind)?;
        let prompt_logprobs = fields.take::<u32>("prompt_logprobs")?;
        let echo_logprobs = logprobs.filter(|_| echo);
        let defaults = SamplingParams::default();
        let params = SamplingParams {
            n: or(fields, "n", defaults.n)?,
            temperature: or(fields, "temperature", defaults.temperature)?,
            top_k: or(fields, "top_k", defaults.top_k)?,
            top_p: or(fields, "top_p", defaults.top_p)?,
            min_p: or(fields, "min_p", defaults.min_p)?,
            typical_p: or(fields, "typical_p", defaults.typical_p)?,
            repetition_penalty: or(fields, "repetition_penalty", defaults.repetition_penalty)?,
            presence_penalty: or(fields, "presence_penalty", defaults.presence_penalty)?,
            frequency_penalty: or(fields, "frequency_penalty", defaults.frequency_penalty)?,
            logit_bias: match fields.take::<Value>("logit_bias")? {
                Some(bias) => logit_bias_from_json(&bias).map_err(refuse)?,
                None => defaults.logit_bias,
            },
            bad_words: bad_words(fields, prefix, engine)?,
            allowed_token_ids: fields.take("allowed_token_ids")?,
            min_tokens: or(fields, "min_tokens", defaults.min_tokens)?,
            max_tokens,
            stop: fields.take::<OneOrMany<String>>("stop")?.map_or(vec![], |stop| stop.0),
            stop_token_ids: or(fields, "stop_token_ids", vec![])?,
            include_stop_str_in_output: or(fields, "include_stop_str_in_output", false)?,
            ignore_eos: or(fields, "ignore_eos", false)?,
            seed: seed(fields, prefix)?,
            logprobs,
            prompt_logprobs: prompt_logprobs.max(echo_logprobs),
            skip_special_tokens: or(fields, "skip_special_tokens", true)?,
        };
        let own_name = |error: ParamError| match error.field {
            "max_tokens" => error.to_string().replacen("max_tokens", most, 1),
            "logprobs" => error.to_string().replacen("logprobs", logprobs_name, 1),
            _ => error.to_string(),
        };
        params.check(engine.limits()).map_err(|error| {
            let field = match error.field {
                "max_tokens" => most,
                "logprobs" => logprobs_name,
                // That of an echo is the other's.
                "prompt_logprobs" if prompt_logprobs < echo_logprobs => logprobs_name,
                field => field,
            };
            ApiError::param(format!("{prefix}{field}"), own_name(error))
        })?;
        if prompt_only && params.min_tokens > 0 {
            let error = ParamError::new("min_tokens", params.min_tokens, "at most max_tokens, 0");
            return Err(refuse(error));
        }
        let form = form::take(fields, prefix)?;
        let truncate = Truncate::take(fields)?;
        let shown = |k: Option<u32>| k.map(|k| k as usize);
        Ok(Sampling {
            params,
            form,
            most: format!("{prefix}{most}"),
            logprobs_name: format!("{prefix}{logprobs_name}"),
            prompt_only,
            logprobs: shown(logprobs),
            prompt_logprobs: shown(prompt_logprobs),
            echo_logprobs: shown(echo_logprobs),
            truncate,
        })
    }
}

/// A parameter, or what it is if it is not set.
fn or<T: Field>(fields: &mut Fields, name: &str, default: T) -> Result<T, ApiError> {
    Ok(fields.take(name)?.unwrap_or(default))
}

/// Most tokens of an answer, and the name under which they were given.
fn max_tokens(fields: &mut Fields, kind: Kind) -> Result<(Option<usize>, &'static str), ApiError> {
    let old = fields.take::<usize>("max_tokens")?;
    match kind {
        Kind::Chat => match fields.take::<usize>("max_completion_tokens")? {
            Some(most) => Ok((Some(most), "max_completion_tokens")),
            None => Ok((old, "max_tokens")),
        },
        Kind::Completions | Kind::Inference => Ok((Some(old.unwrap_or(16)), "max_tokens")),
    }
}

/// How many alternatives to show of each token, and the name under which that was given.
fn logprobs(fields: &mut Fields, kind: Kind) -> Result<(Option<u32>, &'static str), ApiError> {
    if kind != Kind::Chat {
        return Ok((fields.take("logprobs")?, "logprobs"));
    }
    const TOP: &str = "top_logprobs";
    let wanted = fields.take::<bool>("logprobs")?.unwrap_or(false);
    let top = fields.take::<u32>(TOP)?.unwrap_or(0);
    if top > 0 && !wanted {
        return Err(ApiError::param(TOP, format!("{TOP} is {top}; it needs `logprobs` to be true")));
    }
    Ok((wanted.then_some(top), TOP))
}

/// A seed is any number of 64 bits, with a sign or without.
fn seed(fields: &mut Fields, prefix: &str) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take::<Value>("seed")? else { return Ok(None) };
    let whole = u64::of(value.clone()).or_else(|value| i64::of(value).map(|signed| signed as u64));
    whole.map(Some).map_err(|found| {
        let expected = "a whole number of 64 bits";
        ApiError::param(format!("{prefix}seed"), format!("seed: expected {expected}, found {}", short(&found)))
    })
}

/// Words that answers must not contain, as tokens.
fn bad_words(fields: &mut Fields, prefix: &str, engine: &Engine) -> Result<Vec<Vec<u32>>, ApiError> {
    let mut all = vec![];
    for word in fields.take::<Vec<String>>("bad_words")?.unwrap_or_default() {
        let sequences = bad_word_sequences(engine.tokenizer(), &word);
        if sequences.is_empty() {
            let message = format!("bad_words has {}; it must be of words that have tokens", short(&word.into()));
            return Err(ApiError::param(format!("{prefix}bad_words"), message));
        }
        all.extend(sequences);
        if all.len() > engine.limits().max_bad_words {
            break; // refused with the others
        }
    }
    Ok(all)
}
