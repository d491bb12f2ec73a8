//! Fetching from a server on this machine that speaks the Hub's protocol: a HEAD-like ranged request gives commit and
//! hash, further ranged requests the bytes.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::*;

#[derive(Default)]
struct State {
    files: Mutex<HashMap<String, Vec<u8>>>,
    /// Requests served, and bytes of bodies sent.
    requests: AtomicUsize,
    sent: AtomicUsize,
    /// Whether to close the connection in the middle of a large body, once.
    break_once: Mutex<bool>,
    /// The Authorization header that is needed, if any.
    needs: Mutex<Option<String>>,
}

struct Server {
    state: Arc<State>,
    address: String,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::<State>::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(&state, stream));
            }
        });
        Server { state, address }
    }

    fn put(&self, path: &str, content: &[u8]) {
        self.state.files.lock().unwrap().insert(path.to_owned(), content.to_vec());
    }
}

fn serve(state: &State, stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        if respond(state, &lines, &mut out).is_none() {
            return;
        }
    }
}

/// Answers one request; `None` closes the connection.
fn respond(state: &State, lines: &[String], out: &mut TcpStream) -> Option<()> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let header = |name: &str| {
        let lower = |line: &String| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        lines.iter().find(|line| lower(line)).map(|line| line[name.len() + 2..].to_owned())
    };
    let mut reply = |status: &str, extra: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{extra}\r\n", body.len());
        out.write_all(head.as_bytes()).and_then(|()| out.write_all(body)).ok()
    };
    if state.needs.lock().unwrap().is_some_and_differs(header("authorization")) {
        return reply("401 Unauthorized", "", b"");
    }
    let path = lines[0].split(' ').nth(1)?.to_owned();
    let files = state.files.lock().unwrap();
    let Some(content) = files.get(&path) else { return reply("404 Not Found", "", b"") };
    let range = header("range")?;
    let (from, to) = range.strip_prefix("bytes=")?.split_once('-')?;
    let from: usize = from.parse().ok()?;
    let to = to.parse().unwrap_or(content.len() - 1).min(content.len() - 1);
    let body = &content[from..=to];
    let mut hash = Hasher::default();
    hash.write_all(content).unwrap();
    let extra = format!(
        "Content-Range: bytes {from}-{to}/{}\r\nETag: \"{}\"\r\nX-Repo-Commit: 0123abc\r\n",
        content.len(),
        hash.hex()
    );
    if body.len() > 1000 && std::mem::take(&mut *state.break_once.lock().unwrap()) {
        let head = format!("HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n{extra}\r\n", body.len());
        out.write_all(head.as_bytes()).ok()?;
        out.write_all(&body[..body.len() / 2]).ok()?;
        return None;
    }
    state.sent.fetch_add(body.len(), Ordering::Relaxed);
    reply("206 Partial Content", &extra, body)
}

trait Differs {
    fn is_some_and_differs(&self, other: Option<String>) -> bool;
}

impl Differs for Option<String> {
    fn is_some_and_differs(&self, other: Option<String>) -> bool {
        self.is_some() && *self != other
    }
}

fn content() -> Vec<u8> {
    (0..200_000u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect()
}

const PATH: &str = "/me/tiny/resolve/main/sub/model.gguf";

fn name() -> Name {
    Name::parse("me/tiny/sub/model.gguf").unwrap()
}

fn hub(server: &Server, dir: &TempDir) -> Hub {
    Hub { endpoint: Some(server.address.clone() + "/"), cache: dir.path().to_owned(), token: None }
}

#[test]
fn a_file_is_fetched_once_and_cached() {
    let server = Server::start();
    server.put(PATH, &content());
    let dir = TempDir::new().unwrap();
    let hub = hub(&server, &dir);
    assert_eq!(hub.cached(&name()), None);
    let path = hub.fetch(&name()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), content());
    assert!(path.starts_with(dir.path()) && path.ends_with("sub/model.gguf"));
    let requests = server.state.requests.load(Ordering::Relaxed);
    assert_eq!(hub.fetch(&name()).unwrap(), path);
    assert_eq!(hub.cached(&name()), Some(path));
    assert_eq!(server.state.requests.load(Ordering::Relaxed), requests);
}

#[test]
fn several_at_once_fetch_once() {
    let server = Server::start();
    server.put(PATH, &content());
    let dir = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..4).map(|_| scope.spawn(|| hub(&server, &dir).fetch(&name()).unwrap())).collect();
        for fetch in fetches {
            assert_eq!(fs::read(fetch.join().unwrap()).unwrap(), content());
        }
    });
    assert!(server.state.sent.load(Ordering::Relaxed) < content().len() + 100);
}

#[test]
fn a_broken_connection_goes_on_where_it_stopped() {
    let server = Server::start();
    server.put(PATH, &content());
    *server.state.break_once.lock().unwrap() = true;
    let dir = TempDir::new().unwrap();
    let path = hub(&server, &dir).fetch(&name()).unwrap();
    assert_eq!(fs::read(path).unwrap(), content());
    assert!(server.state.sent.load(Ordering::Relaxed) < content().len());
}

#[test]
fn errors_say_what_to_do() {
    let server = Server::start();
    let dir = TempDir::new().unwrap();
    let mut hub = hub(&server, &dir);
    let error = hub.fetch(&name()).unwrap_err().to_string();
    assert!(
        error.starts_with("hf:me/tiny/sub/model.gguf: ") && error.contains("no such repository or file"),
        "{error}"
    );

    server.put(PATH, &content());
    *server.state.needs.lock().unwrap() = Some("Bearer secret".to_owned());
    let error = hub.fetch(&name()).unwrap_err().to_string();
    assert!(error.contains("set HF_TOKEN"), "{error}");
    hub.token = Some("wrong".to_owned());
    let error = hub.fetch(&name()).unwrap_err().to_string();
    assert!(error.contains("token does not allow it"), "{error}");
    hub.token = Some("secret".to_owned());
    hub.fetch(&name()).unwrap();
}

#[test]
fn a_damaged_file_is_refused_and_removed() {
    let server = Server::start();
    server.put(PATH, &content());
    let dir = TempDir::new().unwrap();
    let path = hub(&server, &dir).fetch(&name()).unwrap();
    let blob = path.canonicalize().unwrap();
    fs::write(&blob, b"damaged").unwrap();
    let error = check(&path).unwrap_err().to_string();
    assert!(error.contains("its SHA-256 is") && error.contains("fetch it again"), "{error}");
    assert!(!blob.exists());
    assert_eq!(fs::read(hub(&server, &dir).fetch(&name()).unwrap()).unwrap(), content());
}

#[test]
fn names_need_owner_name_and_file() {
    assert_eq!(Name::parse("a/b/c.gguf"), Some(Name { repository: "a/b".to_owned(), file: "c.gguf".to_owned() }));
    for bad in ["", "a", "a/b", "a/b/", "/b/c", "a//c", "a/b/../c", "../b/c"] {
        assert_eq!(Name::parse(bad), None, "{bad}");
    }
}
