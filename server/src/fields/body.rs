//! The body of a request: JSON, and not too much of it.

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tokio::sync::OwnedSemaphorePermit;
use tokio_stream::StreamExt;

use super::Fields;
use crate::error::ApiError;
use crate::state::App;

/// A client that is silent for so long waits for the answer.
const PAUSE: Duration = Duration::from_millis(200);

/// What axum's handlers take as their last argument: a body that says it is JSON, no larger than the server allows. It is
/// not parsed yet: values are many times as large as their text, so that is for [`App::blocking`], where few are at once.
pub struct Raw {
    bytes: Vec<u8>,
    /// Its share of what all bodies may have.
    _share: Option<OwnedSemaphorePermit>,
}

impl Raw {
    /// Its parameters.
    ///
    /// # Errors
    /// Those of [`Fields::parse`].
    pub fn fields(self) -> Result<Fields, ApiError> {
        Fields::parse(&self.bytes)
    }
}

impl FromRequest<App> for Raw {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Raw, ApiError> {
        let config = app.config();
        if !is_json(&request) {
            return Err(ApiError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the body must be JSON, with the header `content-type: application/json`",
            ));
        }
        let length = request.headers().get(CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
        tokio::select! {
            // What has arrived is answered.
            biased;
            body = read(request.into_body(), length, app) => body,
            () = tokio::time::sleep(config.body_timeout) => {
                let message = format!("the body did not arrive within {} s", config.body_timeout.as_secs_f64());
                Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, message))
            }
            () = app.in_flight().ending() => {
                Err(ApiError::unavailable("the server is shutting down, and waits for no more of the body"))
            }
        }
    }
}

/// Whether the request says that its body is JSON. It must: a page of another origin can send anything else without asking
/// the browser's leave.
fn is_json(request: &Request) -> bool {
    let Some(Ok(kind)) = request.headers().get(CONTENT_TYPE).map(|value| value.to_str()) else { return false };
    let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

async fn read(body: Body, length: Option<u64>, app: &App) -> Result<Raw, ApiError> {
    let most = app.config().max_body;
    let mut stream = body.into_data_stream();
    if length.is_some_and(|length| length > most as u64) {
        return Err(too_large(stream, most).await);
    }
    let mut bytes = Vec::with_capacity(length.unwrap_or(0) as usize);
    let mut share: Option<OwnedSemaphorePermit> = None;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad_request(format!("the body broke off: {error}")))?;
        if bytes.len() + chunk.len() > most {
            return Err(too_large(stream, most).await);
        }
        // Who waited here for room would hold what others wait for.
        let more = app.body_share(chunk.len())?;
        match &mut share {
            Some(share) => share.merge(more),
            None => share = Some(more),
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Raw { bytes, _share: share })
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
