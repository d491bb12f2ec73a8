//! Whatever is wrong, the answer has OpenAI's error body; and a parameter that has no effect is told.

use serde_json::json;
use tegula_server::ServerConfig;

use super::server::{Server, scripted};

#[test]
fn paths_methods_and_bodies() {
    let server = Server::start(scripted());
    let client = &server.client;
    assert_eq!(client.get("/v1/unknown").error(404).kind, "NotFoundError");
    let answer = client.get("/tokenize");
    assert_eq!(answer.error(405).kind, "MethodNotAllowedError");
    assert_eq!(answer.header("allow"), Some("POST"));
    assert_eq!(client.send("POST", "/tokenize", b"{").error(400).kind, "BadRequestError");
    let plain = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n";
    for kind in ["", "content-type: text/plain\r\n", "content-type: application/jsonx\r\n", "content-type: é\r\n"] {
        let request = [&plain[..], kind.as_bytes(), b"\r\n{}"].concat();
        assert_eq!(client.raw(&request).error(415).kind, "UnsupportedMediaTypeError", "{kind:?}");
    }
}

#[test]
fn a_parameter_without_effect_is_named_or_refused() {
    let server = Server::start(scripted());
    let body = json!({ "prompt": "a", "colour": "red", "größe": 1, "nothing": null });
    let answer = server.client.post("/tokenize", &body);
    assert_eq!(answer.ok()["count"], 1);
    assert_eq!(answer.header("x-ignored-parameters"), Some("colour,gr%C3%B6%C3%9Fe"));
    assert_eq!(server.client.post("/tokenize", &json!({ "prompt": "a" })).header("x-ignored-parameters"), None);

    let strict = Server::configured(scripted(), ServerConfig { strict_parameters: true, ..ServerConfig::default() });
    strict.client.post("/tokenize", &body).refuses("colour");
    strict.client.post("/tokenize", &json!({ "prompt": "a", "model": "test-model", "nothing": null })).ok();
    for path in ["/v1/completions", "/v1/chat/completions"] {
        let body =
            json!({ "prompt": "p", "messages": [{ "role": "user", "content": "q" }], "max_tokens": 1, "colour": 1 });
        let error = strict.client.post(path, &body).error(400);
        assert!(error.param.is_some(), "{path}: {}", error.message);
    }
}
