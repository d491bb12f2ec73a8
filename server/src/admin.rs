//! About the server: `/version`, `/server_info`, and `/reset_prefix_cache`.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::{Map, Value, json};
use tegula_engine::Engine;

use crate::error::ApiError;
use crate::host;
use crate::state::App;

/// The version of this program.
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Forgets what prompts have in common with earlier ones. Requests that run go on.
pub async fn reset_prefix_cache(State(app): State<App>, headers: HeaderMap) -> Result<Json<Value>, ApiError> {
    host::check_origin(&app, &headers)?;
    app.engine()?.reset_prefix_cache();
    Ok(Json(json!({ "success": true })))
}

/// What serves here: everything that decides about answers, all limits, and what is not to be had and why.
pub async fn server_info(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let engine = app.engine()?;
    let (info, config, limits, scheduler) = (engine.info(), app.config(), engine.limits(), engine.config());
    let order: Map<String, Value> = info.order.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let names: Vec<&str> = std::iter::once(engine.name()).chain(config.aliases.iter().map(String::as_str)).collect();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_seconds": app.started().elapsed().as_secs_f64(),
        "model": {
            "names": names,
            "architecture": info.architecture,
            "identity": info.identity,
            "device": info.device,
            "vocab_size": info.vocab_size,
            "context": info.context,
            "chat_template": engine.template().is_some(),
        },
        "order": order,
        "kernels": info.kernels,
        "memory": {
            "weight_bytes": info.weight_bytes,
            "kv_bytes": u64::from(info.num_blocks) * info.block_bytes,
            "kv_blocks": info.num_blocks,
            "block_size": info.block_size,
            "block_bytes": info.block_bytes,
            "kv_tokens": u64::from(info.num_blocks) * info.block_size as u64,
        },
        "scheduler": {
            "max_model_len": scheduler.max_model_len,
            "max_num_seqs": scheduler.max_num_seqs,
            "max_num_batched_tokens": scheduler.max_num_batched_tokens,
            "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
            "enable_prefix_caching": scheduler.enable_prefix_caching,
            "overlap": scheduler.max_concurrent_batches > 1,
        },
        "limits": {
            "max_waiting": engine.max_waiting(),
            "max_logprobs": limits.max_logprobs,
            "max_n": limits.max_n,
            "max_stop": limits.max_stop,
            "max_stop_bytes": limits.max_stop_bytes,
            "max_stop_token_ids": limits.max_stop_token_ids,
            "max_logit_bias": limits.max_logit_bias,
            "max_bad_words": limits.max_bad_words,
            "max_bad_word_tokens": limits.max_bad_word_tokens,
            "max_body_bytes": config.max_body,
            "max_connections": config.max_connections,
            "max_blocking": config.max_blocking,
            "body_timeout_seconds": config.body_timeout.as_secs_f64(),
            "header_timeout_seconds": config.header_timeout.as_secs_f64(),
            "client_timeout_seconds": config.client_timeout.as_secs_f64(),
        },
        "heartbeat_seconds": engine.heartbeat().as_secs_f64(),
        "strict_parameters": config.strict_parameters,
        "api_keys": !config.api_keys.is_empty(),
        "allowed_origins": config.allowed_origins,
        "disabled": disabled(engine),
    })))
}

/// Features that others have and this server has not, or not now: each with the reason.
fn disabled(engine: &Engine) -> Vec<Value> {
    let never = [
        ("adapters", "LoRA adapters are not supported"),
        ("speculative_decoding", "not supported"),
        ("beam_search", "not supported: a request has n independent answers"),
        (
            "reasoning_parser",
            "not supported: thoughts are a part of the text, and stop strings are looked for in all of it",
        ),
        ("multimodal", "models of text only"),
        ("embeddings", "models that generate only"),
        ("parallel_devices", "a model runs on one device"),
        ("processed_logprobs", "log-probabilities are those of the model, before rules and temperature"),
        ("sleep", "not supported"),
    ];
    let mut list: Vec<(&str, String)> = never.map(|(name, why)| (name, why.to_owned())).to_vec();
    let mut unless = |has: bool, name, why: &str| {
        if !has {
            list.push((name, why.to_owned()));
        }
    };
    let config = engine.config();
    unless(engine.template().is_some(), "chat", "the model's file has no chat template");
    unless(
        engine.tokenizer().ends().next().is_some(),
        "structured_outputs",
        "the vocabulary has no token that ends answers",
    );
    unless(config.enable_prefix_caching, "prefix_caching", "switched off by --no-enable-prefix-caching");
    unless(config.max_concurrent_batches > 1, "overlap", "switched off by --no-overlap");
    let on_gpu = !engine.info().device.starts_with("cpu") && config.max_concurrent_batches > 1;
    unless(
        !on_gpu,
        "asynchronous_sampling",
        "each step's tokens are read before the next step starts; only planning overlaps",
    );
    list.into_iter().map(|(name, why)| json!({ "feature": name, "reason": why })).collect()
}
