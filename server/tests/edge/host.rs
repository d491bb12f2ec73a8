//! Pages of others: what they may have a browser ask.

use tegula_server::{Keys, ServerConfig};

use super::server::{Server, scripted};

fn status(server: &Server, host: &str) -> u16 {
    let host = if host.is_empty() { String::new() } else { format!("host: {host}\r\n") };
    server.client.raw(format!("GET /v1/models HTTP/1.1\r\n{host}connection: close\r\n\r\n").as_bytes()).status
}

fn allowing(origins: &[&str]) -> Server {
    let allowed_origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
    Server::configured(scripted(), ServerConfig { allowed_origins, ..ServerConfig::default() })
}

#[test]
fn a_name_that_was_made_to_stand_for_this_machine_is_none_of_its() {
    let server = Server::start(scripted());
    for own in ["localhost", "LocalHost:8000", "localhost.", "127.0.0.1", "127.0.0.1:8000", "[::1]:8000", "192.0.2.1"] {
        assert_eq!(status(&server, own), 200, "{own}");
    }
    for other in ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "é"]
    {
        assert_eq!(status(&server, other), 403, "{other}");
    }
    let answer = server.client.raw(b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert!(answer.error(403).message.contains("--allowed-origins"));
    // What a request's line says counts, as in RFC 9112.
    let absolute = b"GET http://evil.example/v1/models HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(server.client.raw(absolute).status, 403);
    let nameless = b"GET /version HTTP/1.1\r\nconnection: close\r\n\r\n";
    assert_eq!(server.client.raw(nameless).status, 200, "an old client says nothing of it");
}

#[test]
fn origins_that_may_use_the_server_may_be_its_name() {
    let server = allowing(&["https://page.example", "http://other.example:81"]);
    for (host, wanted) in
        [("page.example", 200), ("PAGE.example:8000", 200), ("other.example", 200), ("x.example", 403)]
    {
        assert_eq!(status(&server, host), wanted, "{host}");
    }
    assert_eq!(status(&allowing(&["*"]), "x.example"), 200);
    // Who has a key need not be known by name.
    let locked = ServerConfig { api_keys: Keys::new(["key"]), ..ServerConfig::default() };
    assert_eq!(status(&Server::configured(scripted(), locked), "x.example"), 401);
}

/// It has no body that must be JSON, so a browser asks nobody before it sends it.
#[test]
fn the_prefix_cache_is_not_for_foreign_pages() {
    let server = allowing(&["https://page.example"]);
    let reset = |origin: &str| server.client.with("origin", origin).send("POST", "/reset_prefix_cache", b"");
    reset("https://page.example").ok();
    reset(&format!("http://{}", server.client.addr)).ok();
    server.client.send("POST", "/reset_prefix_cache", b"").ok();
    for foreign in ["https://evil.example", "null", "http://127.0.0.1:1", ""] {
        assert_eq!(reset(foreign).error(403).kind, "PermissionDeniedError", "{foreign}");
    }
}

#[test]
fn without_other_origins_nobody_asks_for_options() {
    let server = Server::start(scripted());
    for (path, wanted) in [("/v1/models", 405), ("/nothing", 404)] {
        let request = format!("OPTIONS {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        server.client.raw(request.as_bytes()).error(wanted);
    }
}
