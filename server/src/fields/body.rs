//! The body of a request: JSON, and not too much of it.

use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tokio_stream::StreamExt;

use super::Fields;
use crate::error::ApiError;
use crate::state::App;

/// A client that is silent for so long waits for the answer.
const PAUSE: Duration = Duration::from_millis(200);

impl FromRequest<App> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Fields, ApiError> {
        let config = app.config();
        if !is_json(&request) {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be JSON, with the header `content-type: application/json`",
            ));
        }
        let length = request.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        let read = read(request.into_body(), length, config.max_body);
        let body = tokio::time::timeout(config.body_timeout, read).await.map_err(|_| {
            let message = format!("the body did not arrive within {} s", config.body_timeout.as_secs_f64());
            ApiError::new(StatusCode::REQUEST_TIMEOUT, message)
        })??;
        Fields::parse(&body)
    }
}

/// Whether the request says that its body is JSON. It must: a page of another origin can send anything else without asking
/// the browser's leave.
fn is_json(request: &Request) -> bool {
    let Some(Ok(kind)) = request.headers().get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

async fn read(body: Body, length: Option<u64>, most: usize) -> Result<Bytes, ApiError> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(most as u64) as usize);
    if length.is_some_and(|length| length > most as u64) {
        return Err(too_large(stream, most).await);
    }
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
        if bytes.len() + chunk.len() > most {
            return Err(too_large(stream, most).await);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// A client that still sends reads no answer: some of what it sends is taken and thrown away first, until it pauses.
async fn too_large(mut rest: BodyDataStream, most: usize) -> ApiError {
    let mut patience = 4 * most;
    while let Ok(Some(Ok(chunk))) = tokio::time::timeout(PAUSE, rest.next()).await {
        if chunk.len() > patience {
            break;
        }
        patience -= chunk.len();
    }
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {most} bytes, the most it may have"))
}
