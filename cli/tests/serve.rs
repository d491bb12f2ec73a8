//! `tegula serve` from outside, on the demo model: a process that is started, asked and ended.

#[path = "../../server/tests/conformance/client.rs"]
#[allow(dead_code)]
mod client;
mod common;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use client::{Client, Events};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// A server, ended with the test.
struct Server {
    child: Child,
    /// Its lines until it was ready.
    greeting: Vec<String>,
    client: Client,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.arg("serve").args(args).env_remove("TEGULA_API_KEY").stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

impl Server {
    /// Starts one with the demo model on any port, and waits until it is ready; none if the model is not here.
    fn start(args: &[&str]) -> Option<Server> {
        let path = common::model("smollm2")?;
        let mut args = args.to_vec();
        args.extend(["--served-model-name", "demo", "--max-model-len", "1024", "--kv-memory", "16384 tokens"]);
        let all: Vec<&str> = [path.to_str().unwrap(), "--port", "0"].into_iter().chain(args).collect();
        Some(Server::of(command(&all).spawn().unwrap()))
    }

    fn of(mut child: Child) -> Server {
        let mut stderr = child.stderr.take().unwrap();
        // Somebody must read it; a test that fails shows it.
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            eprint!("{text}");
        });
        let mut greeting = vec![];
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let last = line.contains("Ctrl-C");
            greeting.push(line);
            if last {
                break;
            }
        }
        let page =
            greeting.iter().find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_owned()));
        let addr = page.unwrap_or_else(|| panic!("no address in {greeting:#?}")).parse().unwrap();
        Server { child, greeting, client: Client::new(addr) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    fn end(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A stream whose answer has begun.
    fn stream(&self, max_tokens: usize) -> Events {
        let body = json!({
            "messages": [{ "role": "user", "content": "Count." }], "max_tokens": max_tokens, "ignore_eos": true,
            "temperature": 0,
        });
        let mut events = self.client.stream(CHAT, &body);
        assert!(events.next().is_some() && events.next().is_some());
        events
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn reason(event: &Value) -> &Value {
    &event["choices"][0]["finish_reason"]
}

#[test]
fn it_says_how_to_use_it_and_that_works() {
    let Some(mut server) = Server::start(&["--max-num-seqs", "8"]) else { return };
    let text = server.greeting.join("\n");
    assert!(text.contains("KV cache") && text.contains("16,384 tokens"), "the memory plan: {text}");
    assert!(server.client.get("/").text().contains("<html"), "the page");
    assert_eq!(server.client.get_json("/v1/models")["data"][0]["id"], "demo");
    assert_eq!(server.client.get_json("/server_info")["scheduler"]["max_num_seqs"], 8);

    let line = server.greeting.iter().find(|line| line.starts_with("curl ")).unwrap();
    let line = line.replace("\"messages\"", "\"max_tokens\":8,\"messages\"");
    match Command::new("sh").args(["-c", &format!("{line} --silent --show-error")]).output() {
        Ok(answer) if answer.status.code() != Some(127) => {
            let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
            assert_eq!(answer["usage"]["completion_tokens"], 8, "{answer}");
        }
        _ => eprintln!("skipped: no curl"),
    }
    server.signal(Signal::TERM);
    assert_eq!(server.end().code(), Some(0));
}

/// T44.
#[test]
fn a_first_signal_lets_streams_end_and_a_second_cuts_them_off() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(mut server) = Server::start(&[]) else { return };
        let streams: Vec<Events> = (0..3).map(|_| server.stream(300)).collect();
        server.signal(signal);
        let start = Instant::now();
        while server.client.get("/ready").status != 503 {
            assert!(start.elapsed() < Duration::from_secs(5), "it does not drain");
        }
        server.client.post(CHAT, &json!({ "messages": [{ "role": "user", "content": "Hi" }] })).error(503);
        assert_eq!(server.client.get("/health").status, 200);
        for stream in streams {
            let events = stream.rest();
            let last = events.iter().rev().find(|event| !event["choices"][0].is_null()).unwrap();
            assert_eq!(reason(last), "length", "{last}");
        }
        assert_eq!(server.end().code(), Some(0));
    }

    let Some(mut server) = Server::start(&["--max-num-seqs", "4"]) else { return };
    let streams: Vec<Events> = (0..3).map(|_| server.stream(900)).collect();
    server.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::TERM);
    for stream in streams {
        let last = stream.rest().pop().unwrap();
        assert_eq!(last["error"]["code"], 503, "{last}");
    }
    assert_eq!(server.end().code(), Some(0));
}

#[test]
fn the_grace_period_ends() {
    let Some(mut server) = Server::start(&["--grace", "0"]) else { return };
    let stream = server.stream(900);
    server.signal(Signal::INT);
    let last = stream.rest().pop().unwrap();
    assert_eq!(last["error"]["code"], 503, "{last}");
    assert_eq!(server.end().code(), Some(0));
}

/// A request that never comes whole is none that its end waits for.
#[test]
fn a_half_sent_request_holds_no_end() {
    let Some(mut server) = Server::start(&["--grace", "20"]) else { return };
    let mut socket = server.client.connect();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    socket.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let start = Instant::now();
    server.signal(Signal::TERM);
    assert!(client::Response::new(socket).whole().error(503).message.contains("shutting down"));
    assert_eq!(server.end().code(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn keys_come_from_the_environment_and_from_files() {
    let Some(path) = common::model("smollm2") else { return };
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "from-file\n").unwrap();
    let args = [path.to_str().unwrap(), "--port", "0", "--kv-memory", "4096 tokens", "--max-model-len", "512"];
    let mut keyed = command(&args);
    keyed.arg("--api-key-file").arg(keys.path()).env("TEGULA_API_KEY", "from-environment");
    let server = Server::of(keyed.spawn().unwrap());
    server.client.get("/v1/models").error(401);
    for key in ["from-file", "from-environment"] {
        server.client.with("authorization", &format!("Bearer {key}")).get("/v1/models").ok();
    }
    assert!(server.greeting.iter().any(|line| line.contains("Bearer $TEGULA_API_KEY")), "{:#?}", server.greeting);

    // A variable that is no key must not leave the door open.
    for key in [OsStr::from_bytes(b"k\xff"), OsStr::new(" ")] {
        let output = command(&args).env("TEGULA_API_KEY", key).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("TEGULA_API_KEY"), "{output:?}");
    }
}

/// Also while it loads, the port answers; and a port is free as soon as its server is gone, however that went.
#[test]
fn it_answers_from_the_start_and_again_after_a_kill() {
    let Some(path) = common::model("smollm2") else { return };
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let port_text = port.to_string();
    let args = [path.to_str().unwrap(), "--port", &port_text, "--kv-memory", "4096 tokens", "--max-model-len", "512"];
    for _ in 0..2 {
        let start = Instant::now();
        let mut server = command(&args).spawn().unwrap();
        let client = Client::new(([127, 0, 0, 1], port).into());
        while std::net::TcpStream::connect(client.addr).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "the port does not open");
            std::thread::sleep(Duration::from_millis(2));
        }
        loop {
            match client.get("/health") {
                answer if answer.status == 200 => break,
                answer => assert!(answer.error(503).message.contains("loading")),
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it does not load");
            std::thread::sleep(Duration::from_millis(5));
        }
        // In the middle of an answer.
        let body = json!({ "prompt": "a", "max_tokens": 400, "ignore_eos": true });
        let mut stream = client.stream("/v1/completions", &body);
        assert!(stream.next().is_some());
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

/// The message of a server that cannot be.
fn refused(args: &[&str]) -> String {
    let output = command(args).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_cannot_be_served_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let text = refused(&["smollm2", "--port", &port]);
    assert!(text.contains(&format!("listening at 127.0.0.1:{port}")) && text.contains("--port"), "{text}");
    let text = refused(&["/no/such/model.gguf", "--port", "0"]);
    assert!(text.contains("/no/such/model.gguf"), "{text}");
    let text = refused(&["smollm2", "--port", "0", "--allowed-origins", "example.org"]);
    assert!(text.contains("`example.org`") && text.contains("http://"), "{text}");
    for wrong in
        [["--port", "65536"], ["--max-num-seqs", "0"], ["--grace", "-1"], ["--kv-memory", "lots"], ["--api-key", ""]]
    {
        let text = refused(&[&["smollm2"], &wrong[..]].concat());
        assert!(text.contains(wrong[0].trim_start_matches("--")) || text.contains("API keys"), "{wrong:?}: {text}");
    }
}
