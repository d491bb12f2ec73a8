//! The chat page at `/`: one file, which asks nobody but this server for anything. Its content security policy holds the
//! browser to that, and names the page's own style and script by their digests.

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::IntoResponse;
use axum::routing::get;
use sha2::{Digest, Sha256};

const PAGE: &str = include_str!("page.html");

/// `GET /`.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(page))
}

async fn page() -> impl IntoResponse {
    static POLICY: LazyLock<String> = LazyLock::new(policy);
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE)
}

fn policy() -> String {
    let digests = |tag| elements(tag).map(digest).collect::<Vec<_>>().join(" ");
    format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        digests("script"),
        digests("style")
    )
}

/// What is inside the page's elements of this name.
fn elements(tag: &str) -> impl Iterator<Item = &'static str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    PAGE.split(open.as_str())
        .skip(1)
        .map(move |rest| rest.split(close.as_str()).next().unwrap_or_default())
        .collect::<Vec<_>>()
        .into_iter()
}

/// As policies name a text: by its SHA-256 in base64.
fn digest(text: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let digit = |i: usize| ALPHABET[(bits >> (18 - 6 * i)) as usize & 63] as char;
        text.extend((0..4).map(|i| if i <= three.len() { digit(i) } else { '=' }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_served_with_its_policy() {
        use tower_service::Service;
        let request = axum::http::Request::get("/").body(axum::body::Body::empty()).unwrap();
        let response = routes::<()>().with_state::<()>(()).call(request).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()[CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], policy().as_str());
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        assert_eq!(body, PAGE.as_bytes());
    }

    #[test]
    fn base64_is_that_of_rfc_4648() {
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{3ff}", "z78=")];
        for (text, expected) in known {
            assert_eq!(base64(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_the_policy_says_so() {
        // Everything in the page that could fetch: the icon is data, requests go to paths of this server.
        assert!(!PAGE.contains("src=") && !PAGE.contains("@import") && !PAGE.contains("url("));
        assert_eq!(PAGE.matches("http").count(), PAGE.matches("http://www.w3.org/2000/svg").count(), "another address");
        assert_eq!(PAGE.matches("href=").count(), PAGE.matches("href=\"data:").count());
        // Nothing that the policy would forbid: handlers and styles in attributes.
        assert!(!PAGE.contains(" onclick=") && !PAGE.contains(" style=") && !PAGE.contains("innerHTML"));
        assert_eq!((elements("script").count(), elements("style").count()), (1, 1));
        assert!(!PAGE.contains("<script ") && !PAGE.contains("<style "));
        let policy = policy();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'sha256-") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert!(axum::http::HeaderValue::from_str(&policy).is_ok());
    }
}
