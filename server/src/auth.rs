//! API keys: `Authorization: Bearer KEY`.
//!
//! Keys are kept, and compared, as SHA-256 digests: how long a comparison takes says nothing about a key, and no message
//! can show one.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};

use crate::error::ApiError;
use crate::state::App;

/// What machines ask for without a key: nothing in them is of a user. The page is text that everybody may read; what it
/// asks for then needs a key.
const OPEN: [&str; 5] = ["/", "/health", "/ready", "/version", "/metrics"];

/// Keys of which a request must have one.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// These. Empty ones and white space around are left out.
    pub fn new<S: AsRef<str>>(keys: impl IntoIterator<Item = S>) -> Keys {
        Keys(
            keys.into_iter()
                .map(|key| key.as_ref().trim().to_owned())
                .filter(|key| !key.is_empty())
                .map(digest)
                .collect(),
        )
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is one. Looks at all of all keys, whatever it finds.
    pub fn contains(&self, key: &str) -> bool {
        let given = digest(key);
        self.0.iter().fold(false, |found, known| {
            let differing = given.iter().zip(known).fold(0, |bits, (a, b)| bits | (a ^ b));
            found | (std::hint::black_box(differing) == 0)
        })
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

fn digest(key: impl AsRef<str>) -> [u8; 32] {
    Sha256::digest(key.as_ref().as_bytes()).into()
}

/// The layer that asks for a key: for [`axum::middleware::from_fn_with_state`].
pub async fn ask(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let config = app.config();
    let path = request.uri().path();
    let open = OPEN.contains(&path) && !(path == "/metrics" && config.protect_metrics);
    if config.api_keys.is_empty() || open {
        return Ok(next.run(request).await);
    }
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        return Err(ApiError::unauthorized("an API key is missing: send the header `Authorization: Bearer KEY`"));
    };
    // Keys may have any characters; bytes that are not UTF-8 are in none.
    let key = std::str::from_utf8(header.as_bytes()).ok().and_then(|text| text.split_once(' '));
    match key {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") && config.api_keys.contains(key.trim()) => {
            Ok(next.run(request).await)
        }
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("bearer") => {
            Err(ApiError::unauthorized("the API key is none that this server knows"))
        }
        _ => Err(ApiError::unauthorized("the header `Authorization` must be `Bearer KEY`")),
    }
}
