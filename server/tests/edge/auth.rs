//! API keys.

use tegula_server::{Keys, ServerConfig};

use super::answers::{COMPLETIONS, completion};
use super::server::{Server, scripted};
use serde_json::json;

fn locked(config: ServerConfig) -> Server {
    Server::configured(
        scripted(),
        ServerConfig { api_keys: Keys::new(["first key", "zweiter-schlüssel", ""]), ..config },
    )
}

#[test]
fn what_machines_ask_for_is_open_and_all_else_wants_a_key() {
    let server = locked(ServerConfig::default());
    for path in ["/health", "/ready", "/version", "/metrics", "/"] {
        assert_eq!(server.client.get(path).status, 200, "{path}");
    }
    for path in ["/v1/models", "/v1/models/test-model", "/server_info", "/nothing", "/healthy", "/health/", "//health"]
    {
        let answer = server.client.get(path);
        assert_eq!(answer.error(401).kind, "AuthenticationError", "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
    }
    for path in [
        COMPLETIONS,
        "/v1/chat/completions",
        "/tokenize",
        "/detokenize",
        "/inference/v1/generate",
        "/reset_prefix_cache",
    ] {
        server.client.post(path, &json!({})).error(401);
    }
}

#[test]
fn each_key_opens_and_nothing_else_does() {
    let server = locked(ServerConfig::default());
    let models = |header: &str| server.client.with("authorization", header).get("/v1/models");
    for good in ["Bearer first key", "bearer first key", "BEARER  first key ", "Bearer zweiter-schlüssel"] {
        models(good).ok();
    }
    for bad in [
        "first key",
        "Bearer",
        "Bearer ",
        "Bearer first",
        "Bearer first keys",
        "Bearer FIRST KEY",
        "Basic Zmlyc3Qga2V5",
        "Bearer first key,zweiter-schlüssel",
        "",
    ] {
        let error = models(bad).error(401);
        assert!(!error.message.contains("first"), "a message tells nobody's key: {}", error.message);
    }
    let body = completion("p", json!({ "max_tokens": 2 }));
    server.client.with("authorization", "Bearer first key").post(COMPLETIONS, &body).ok();
}

#[test]
fn metrics_can_be_locked_too() {
    let server = locked(ServerConfig { protect_metrics: true, ..ServerConfig::default() });
    server.client.get("/metrics").error(401);
    assert_eq!(server.client.with("authorization", "Bearer first key").get("/metrics").status, 200);
    assert_eq!(server.client.get("/health").status, 200);
}

#[test]
fn a_preflight_needs_no_key() {
    let origins = vec!["http://page.example".into()];
    let server = locked(ServerConfig { allowed_origins: origins, ..ServerConfig::default() });
    let preflight = server.client.raw(
        b"OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\norigin: http://page.example\r\n\
          access-control-request-method: GET\r\naccess-control-request-headers: authorization\r\n\r\n",
    );
    assert_eq!(preflight.status, 200);
    let allowed = preflight.header("access-control-allow-headers").unwrap().to_ascii_lowercase();
    assert!(allowed.contains("authorization"), "a browser does not take * for it: {allowed}");
    // What the page then gets says that it may read it, also that the key is missing.
    let answer = server.client.with("origin", "http://page.example").get("/v1/models");
    answer.error(401);
    assert_eq!(answer.header("access-control-allow-origin"), Some("http://page.example"));
}

#[test]
fn keys_are_shown_to_nobody() {
    assert_eq!(format!("{:?}", Keys::new(["secret", "other"])), "Keys(2)");
}
