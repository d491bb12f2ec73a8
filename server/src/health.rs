//! `/health`: whether the engine goes on. `/ready`: whether new requests are welcome.

use axum::extract::State;
use tegula_engine::engine::Health;

use crate::error::ApiError;
use crate::state::App;

/// 200 as long as the engine's steps go on, also while it drains.
pub async fn health(State(app): State<App>) -> Result<(), ApiError> {
    match app.engine()?.health() {
        Health::Ready | Health::Draining => Ok(()),
        Health::Stalled { age } => {
            Err(ApiError::unavailable(format!("no step has moved for {:.1} s", age.as_secs_f64())))
        }
        Health::Failed(why) => Err(ApiError::unavailable(format!("the engine has failed: {why}"))),
    }
}

/// 200 if a router may send requests here.
pub async fn ready(State(app): State<App>) -> Result<(), ApiError> {
    match app.engine()?.health() {
        Health::Ready => Ok(()),
        Health::Draining => Err(ApiError::unavailable("the engine is shutting down")),
        Health::Stalled { .. } | Health::Failed(_) => health(State(app)).await,
    }
}
