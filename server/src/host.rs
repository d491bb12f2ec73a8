//! Who is meant by `Host`, and whose page asks: a browser may be led here by a page of somebody else.
//!
//! A server that listens to its own machine alone and asks for no key trusts whoever reaches it. A page of another origin
//! cannot read its answers, but a name of that page's owner may be made to stand for 127.0.0.1, and then the page's origin
//! is the server's. Such requests have the name in `Host`; what users of this machine write there is `localhost` or an
//! address.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::error::ApiError;
use crate::state::App;

/// The layer that refuses other names than this machine's and those of allowed origins, for
/// [`axum::middleware::from_fn_with_state`].
pub async fn own(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let header = request.headers().get(HOST).map(|host| host.to_str().unwrap_or_default().parse::<Authority>());
    let host = request.uri().authority().cloned().map(Ok).or(header);
    let known = match &host {
        // No browser leaves it out.
        None => true,
        Some(Err(_)) => false,
        Some(Ok(host)) => is_own(host.host()) || is_allowed(&app.config().allowed_origins, host.host()),
    };
    if known {
        return Ok(next.run(request).await);
    }
    let message = "the request's Host is no name of this machine: ask for localhost or an address; or start the server with \
                   --allowed-origins that name the host, or with an API key";
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

/// That no page of a foreign origin asks: for what a page can do without being able to read the answer.
///
/// # Errors
/// 403 if one does.
pub fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let same = host.is_some_and(|host| origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host)));
    if same || app.config().allowed_origins.iter().any(|allowed| allowed == "*" || allowed == origin) {
        return Ok(());
    }
    Err(ApiError::new(StatusCode::FORBIDDEN, "pages of other origins may do this only if --allowed-origins names them"))
}

fn is_own(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok() || host.trim_end_matches('.').eq_ignore_ascii_case("localhost")
}

/// Whether origins have this host, on any port.
fn is_allowed(origins: &[String], host: &str) -> bool {
    let is = |origin: &String| {
        let of = origin.split_once("://").and_then(|(_, of)| of.parse::<Authority>().ok());
        origin == "*" || of.is_some_and(|of| of.host().eq_ignore_ascii_case(host))
    };
    origins.iter().any(is)
}
