//! `/v1/models`: the model, under each of its names.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::App;

/// All names.
pub async fn list(State(app): State<App>) -> Result<Json<Value>, ApiError> {
    let models = names(&app)?.map(|name| card(&app, name)).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(json!({ "object": "list", "data": models })))
}

/// One of them.
pub async fn one(State(app): State<App>, name: Result<Path<String>, PathRejection>) -> Result<Json<Value>, ApiError> {
    let Path(name) = name.map_err(|rejection| ApiError::not_found(rejection.body_text()))?;
    check(&app, Some(&name))?;
    card(&app, &name).map(Json)
}

/// The name that a request gives is one of the model's; none is fine too.
///
/// # Errors
/// 404 if it is none.
pub fn check(app: &App, name: Option<&str>) -> Result<(), ApiError> {
    let Some(name) = name else { return Ok(()) };
    let mut known = names(app)?;
    if known.any(|known| known == name) {
        return Ok(());
    }
    let known: Vec<&str> = names(app)?.collect();
    let shown: String = name.chars().take(100).collect();
    let message = format!("the model `{shown}` does not exist; here is: {}", known.join(", "));
    Err(ApiError { param: Some("model".into()), ..ApiError::not_found(message) })
}

fn names(app: &App) -> Result<impl Iterator<Item = &str>, ApiError> {
    Ok(std::iter::once(app.engine()?.name()).chain(app.config().aliases.iter().map(String::as_str)))
}

fn card(app: &App, name: &str) -> Result<Value, ApiError> {
    let engine = app.engine()?;
    Ok(json!({
        "id": name,
        "object": "model",
        "created": app.created(),
        "owned_by": "tegula",
        "root": engine.name(),
        "parent": null,
        "max_model_len": engine.config().max_model_len,
        "permission": [],
    }))
}
