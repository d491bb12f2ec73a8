//! Connections: floods, the slow, the vanished, too many.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use socket2::{Domain, Socket, Type};
use tegula_engine::Engine;
use tegula_server::ServerConfig;

use super::answers::{CHAT, COMPLETIONS, completion, message};
use super::client::{Client, Response};
use super::server::{Server, scripted};
use super::vocabulary::tokenizer;

/// A long answer that nobody would wait for.
fn long() -> Server {
    Server::start(scripted().step_time(Duration::from_millis(10)))
}

/// How long the server takes to close a connection on which this was sent.
fn closed_after(client: &Client, sent: &[u8]) -> Duration {
    let mut socket = client.connect();
    socket.write_all(sent).unwrap();
    let start = Instant::now();
    let mut rest = vec![];
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    start.elapsed()
}

#[test]
fn floods_of_headers_are_cut_off() {
    let server = Server::start(scripted());
    let lines = |count: usize, length: usize| {
        let line = |n| format!("x-{n}: {}\r\n", "y".repeat(length));
        format!(
            "GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n",
            (0..count).map(line).collect::<String>()
        )
    };
    assert_eq!(server.client.raw(lines(90, 10).as_bytes()).status, 200);
    assert_eq!(server.client.raw(lines(1, 30_000).as_bytes()).status, 200);
    for flood in [lines(101, 1), lines(50_000, 1), lines(20, 8000), lines(1, 200_000)] {
        if let Ok(answer) = server.client.try_raw(flood.as_bytes()) {
            assert_eq!(answer.status, 431);
        }
    }
    // One that never ends.
    let mut socket = server.client.connect();
    socket.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    let endless = (0..1_000_000).try_for_each(|n| socket.write_all(format!("x-{n}: {n}\r\n").as_bytes()));
    assert!(endless.is_err(), "the server must close the connection");
    assert_eq!(server.client.get("/version").status, 200);
}

#[test]
fn heads_must_arrive_and_idle_connections_end() {
    let config = ServerConfig { header_timeout: Duration::from_millis(300), ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    for sent in [
        &b""[..],
        b"GET /ver",
        b"GET /version HTTP/1.1\r\nhost: localhost\r\n",
        b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        let took = closed_after(&server.client, sent);
        assert!((200..3000).contains(&took.as_millis()), "{:?}: {took:?}", String::from_utf8_lossy(sent));
    }
    // Byte by byte does not help.
    let mut socket = server.client.connect();
    let start = Instant::now();
    let drip =
        b"GET /version HTTP/1.1\r\nhost: localhost\r\nx-slow: ".iter().chain(std::iter::repeat(&b'y')).take(1000);
    let cut = drip.into_iter().find_map(|byte| {
        std::thread::sleep(Duration::from_millis(10));
        socket.write_all(&[*byte]).err()
    });
    assert!(cut.is_some() && start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

/// Whoever closes the connection, in whatever way, ends his request: its blocks are free within a step or two.
#[test]
fn a_client_that_leaves_takes_its_request_along() {
    let server = long();
    let body =
        |stream: bool| completion("p", json!({ "max_tokens": 500, "ignore_eos": true, "stream": stream })).to_string();
    let chat = message("q", json!({ "max_tokens": 400, "ignore_eos": true, "n": 3, "temperature": 1, "stream": true }))
        .to_string();
    let asked = [(COMPLETIONS, body(true)), (COMPLETIONS, body(false)), (CHAT, chat)];
    let leave: [fn(TcpStream); 3] = [
        |socket| drop(socket),
        |socket| socket.shutdown(Shutdown::Both).unwrap(),
        // Also who will send no more: nobody can tell this from one who has left.
        |socket| {
            socket.shutdown(Shutdown::Write).unwrap();
            std::thread::sleep(Duration::from_millis(300));
        },
    ];
    for (path, body) in &asked {
        for leave in leave {
            let socket = server.client.request("POST", path, body.as_bytes());
            server.wait("it runs", || server.engine.stats().scheduler.num_running > 0);
            let steps = server.engine.stats().num_steps;
            leave(socket);
            server.wait("it has ended", || server.engine.stats().scheduler.num_running == 0);
            let took = server.engine.stats().num_steps - steps;
            assert!(took < 40, "{path}: {took} steps of 10 ms");
            server.wait("its blocks are free", || server.engine.stats().scheduler.kv.used == 0);
        }
    }
}

/// Whatever was sent behind the request: a line end, as old clients do, or the next ones.
#[test]
fn what_comes_behind_a_request_does_not_hide_that_its_client_left() {
    let server = long();
    let next = b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for behind in [b"\r\n".to_vec(), next.to_vec(), next.repeat(1000)] {
        for stream in [false, true] {
            let more = json!({ "max_tokens": 500, "ignore_eos": true, "stream": stream });
            let mut socket = server.client.request("POST", COMPLETIONS, completion("p", more).to_string().as_bytes());
            socket.set_nonblocking(true).unwrap();
            // As much of it as goes.
            let _ = socket.write_all(&behind);
            server.wait("it runs", || server.engine.stats().scheduler.num_running > 0);
            let steps = server.engine.stats().num_steps;
            drop(socket);
            server.wait("it has ended", || server.engine.stats().scheduler.num_running == 0);
            let took = server.engine.stats().num_steps - steps;
            assert!(took < 40, "{} bytes behind it: {took} steps of 10 ms", behind.len());
        }
    }
}

/// Requests that were sent together are answered one by one, the first of them a long one.
#[test]
fn requests_that_were_sent_together_are_all_answered() {
    let server = Server::start(scripted());
    let body = completion("p", json!({ "max_tokens": 200, "ignore_eos": true })).to_string();
    let mut sent = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    sent += &"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(20);
    let mut socket = server.client.connect();
    socket.write_all(sent.as_bytes()).unwrap();
    let mut reader = std::io::BufReader::new(socket);
    for place in 0..21 {
        let (answer, rest) = Response::read(reader).unwrap().keep();
        let whole = answer.ok();
        assert_eq!(whole["usage"]["completion_tokens"] == 200, place == 0, "{whole}");
        reader = rest;
    }
}

#[test]
fn a_reset_connection_takes_its_request_along() {
    let server = long();
    let body = completion("p", json!({ "max_tokens": 500, "ignore_eos": true, "stream": true })).to_string();
    let socket = server.client.request("POST", COMPLETIONS, body.as_bytes());
    server.wait("it runs", || server.engine.stats().scheduler.num_running > 0);
    // Closed with bytes unread: the system sends a reset instead of an end.
    std::thread::sleep(Duration::from_millis(50));
    drop(socket);
    server.wait("it has ended", || server.engine.stats().scheduler.num_running == 0);
    assert!(server.engine.stats().num_steps < 200);
}

/// Who stops reading holds his connection, and what was said to him, for a time only.
#[test]
fn a_client_that_stops_reading_is_let_go() {
    let config = ServerConfig { client_timeout: Duration::from_secs(1), ..ServerConfig::default() };
    let server = tegula_server::Server::bind("127.0.0.1:0", config).unwrap();
    let engine = Engine::builder("m").build_on(scripted(), tokenizer(false), None).unwrap();
    let (addr, app) = (server.addr(), server.app().clone());
    app.serve_with(engine);
    let _running = server.start().unwrap();

    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&addr.into()).unwrap();
    let mut socket = TcpStream::from(socket);
    // Some megabytes, which no buffer between takes.
    let more =
        json!({ "max_tokens": 480, "ignore_eos": true, "n": 16, "temperature": 1, "logprobs": 20, "stream": true });
    let body = completion("p", more).to_string();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body.as_bytes()).unwrap();
    let wait = |what: &str, holds: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(20), "not so after 20 s: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait("it is answered", &|| app.in_flight().count() == 1);
    wait("all was said", &|| app.engine().unwrap().stats().num_steps > 470);
    wait("the client was let go", &|| app.in_flight().count() == 0);
    drop(socket);
}

#[test]
fn too_many_connections_are_told_so() {
    let config = ServerConfig { max_connections: 4, ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    let held: Vec<TcpStream> = (0..4).map(|_| server.client.connect()).collect();
    let refused = server.client.get("/version");
    assert!(refused.error(503).message.contains("4 connections"));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(refused.header("retry-after").is_some());
    drop(held);
    server.wait("there is room again", || server.client.get("/version").status == 200);
}

#[test]
fn a_storm_of_connections_leaves_nothing_behind() {
    let config = ServerConfig { max_connections: 50, ..ServerConfig::default() };
    let server = Server::configured(scripted(), config);
    for _ in 0..5 {
        let storm: Vec<TcpStream> = (0..300).map(|_| server.client.connect()).collect();
        drop(storm);
    }
    server.wait("it serves", || {
        server
            .client
            .try_raw(b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .is_ok_and(|a| a.status == 200)
    });
    for _ in 0..60 {
        assert_eq!(server.client.get("/version").status, 200);
    }
}

#[test]
fn a_socket_that_is_taken_or_nobodys_is_told() {
    let server = Server::start(scripted());
    let taken = tegula_server::Server::bind(server.client.addr, ServerConfig::default()).err().unwrap();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(tegula_server::Server::bind("192.0.2.1:80", ServerConfig::default()).is_err(), "another machine's");
    assert!(tegula_server::Server::bind("no such host:80", ServerConfig::default()).is_err());
    let loopback = tegula_server::Server::bind("localhost:0", ServerConfig::default()).unwrap();
    assert!(loopback.addr().ip().is_loopback());
}

#[test]
fn a_server_that_is_dropped_lets_answers_out_and_gives_the_port_back() {
    let server = tegula_server::Server::bind("127.0.0.1:0", ServerConfig::default()).unwrap();
    let addr = server.addr();
    let running = server.start().unwrap();
    let client = Client::new(addr);
    let mut idle = client.connect();
    assert_eq!(client.get("/version").status, 200);
    drop(running);
    let mut rest = vec![];
    assert!(matches!(idle.read_to_end(&mut rest), Ok(0) | Err(_)), "idle connections are closed");
    assert!(TcpStream::connect(addr).is_err(), "nobody listens");
    let again = tegula_server::Server::bind(addr, ServerConfig::default()).unwrap().start().unwrap();
    assert_eq!(Client::new(again.addr()).get("/version").status, 200);
}

/// Answers are sent whole, at once, and on a connection that stays.
#[test]
fn a_connection_serves_many_requests_quickly() {
    let server = Server::start(scripted());
    let mut reader = std::io::BufReader::new(server.client.connect());
    let start = Instant::now();
    for _ in 0..100 {
        reader.get_mut().write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let (answer, rest) = Response::read(reader).unwrap().keep();
        assert_eq!(answer.status, 200);
        reader = rest;
    }
    // With delayed acknowledgements each would take 40 ms.
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
