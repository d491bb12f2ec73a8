//! What goes wrong around a server: it is killed, its disk is full, and its clients are slow, vanish, or are no clients.

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tegula_tests::figure::Figure;

use crate::Outcome;
use crate::cases::Reading;
use crate::random::Random;
use crate::server::{Recipe, Server};
use crate::traffic::Known;

/// Asks for a few of the answers and compares them.
pub fn answers_are_right(server: &Server, known: &[Known]) -> Outcome<()> {
    for Known { case, answer } in known {
        match case.ask(&mut server.connect()?, &[])? {
            Ok(now) if now == *answer => {}
            Ok(now) => return Err(format!("{}: {now:?} instead of {answer:?}", case.name).into()),
            Err(refused) => return Err(format!("{}: {} {}", case.name, refused.status(), refused.text()).into()),
        }
    }
    Ok(())
}

/// `kill -9` while it streams, and a new one at the same port; then a polite end, which lets streams finish.
pub fn kill(recipe: &Recipe, few: &[Known], long: &Known) -> Outcome<Vec<Figure>> {
    let mut server = recipe.start()?;
    let address = server.address;
    let began = Instant::now();
    let hung = std::thread::scope(|scope| {
        let streams: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    long.case
                        .stream(&mut crate::http::Connection::open(address, crate::server::PATIENCE)?, &[], |_| false)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(400));
        let killed = server.kill();
        let whole = streams.into_iter().filter(|_| killed.is_ok()).filter_map(|stream| stream.join().ok());
        whole.filter(|read| matches!(read, Ok(Reading::Whole(_)))).count()
    });
    if hung > 0 {
        return Err(
            format!("{hung} answers were whole although the server was killed: they came too early to tell").into()
        );
    }
    println!("  killed: eight streams broke off within {:.1} s", began.elapsed().as_secs_f64());
    let mut server = recipe.at(address.port()).start()?;
    answers_are_right(&server, few)?;
    let ready = server.start;

    // The polite end, during a stream.
    let read = std::thread::scope(|scope| {
        let stream = scope.spawn(|| {
            long.case.stream(&mut crate::http::Connection::open(address, crate::server::PATIENCE)?, &[], |_| false)
        });
        std::thread::sleep(Duration::from_millis(400));
        server.terminate();
        stream.join()
    });
    match read {
        Ok(Ok(Reading::Whole(answer))) if answer == long.answer => {}
        Ok(Ok(Reading::Whole(answer))) => return Err(format!("a stream during the end: {answer:?}").into()),
        Ok(Err(error)) => {
            return Err(format!("a stream did not finish when the server was asked to end: {error}").into());
        }
        _ => return Err("a stream did not finish when the server was asked to end".into()),
    }
    let status = server.ended(Duration::from_secs(10))?;
    if !status.success() {
        return Err(format!("the server ended with {status} when it was asked to:\n{}", server.said()).into());
    }
    Ok(vec![Figure::new("faults: ready again after kill -9", ready.as_secs_f64(), "s")])
}

/// The folder of compiled kernels is on a full disk.
pub fn full_disk(recipe: &Recipe, few: &[Known]) -> Outcome<Vec<Figure>> {
    let folder = std::env::temp_dir().join(format!("tegula-full-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mounted = Mounted::small(&folder);
    let outcome = match &mounted {
        Err(error) => {
            tegula_tests::skip(&format!("a full disk: no small file system can be mounted ({error})"));
            Ok(vec![])
        }
        Ok(_) => on_full_disk(recipe, few, &folder),
    };
    drop(mounted);
    fs::remove_dir_all(&folder)?;
    outcome
}

fn on_full_disk(recipe: &Recipe, few: &[Known], folder: &Path) -> Outcome<Vec<Figure>> {
    let filled = fs::write(folder.join("fill"), vec![1; 1 << 20]);
    if filled.is_ok() {
        return Err("the small file system took a megabyte".into());
    }
    let mut server = recipe.env("TEGULA_CACHE", folder).start()?;
    answers_are_right(&server, few)?;
    server.is_well()?;
    if !server.has_said("cannot be written") {
        return Err(format!("nothing was said of the full disk:\n{}", server.said()).into());
    }
    println!("  full disk: ready after {:.1} s, answers are right", server.start.as_secs_f64());
    Ok(vec![Figure::new("faults: ready with a full disk for kernels", server.start.as_secs_f64(), "s")])
}

/// A mounted file system; unmounted when dropped.
struct Mounted(CString);

impl Mounted {
    /// One of 64 kB in memory.
    fn small(at: &Path) -> std::io::Result<Mounted> {
        let path = CString::new(at.as_os_str().as_encoded_bytes())?;
        let (kind, options) = (c"tmpfs".as_ptr(), c"size=64k".as_ptr());
        // SAFETY: all four are texts that end and live.
        match unsafe { libc::mount(kind, path.as_ptr(), kind, 0, options.cast()) } {
            0 => Ok(Mounted(path)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a text that ends and lives. The server that used it has ended; detached, it goes in any case.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Clients that read slowly, or not until all is over: nobody waits for them, and they get all of it.
pub fn slow_readers(server: &Server, few: &[Known], long: &Known) -> Outcome<Vec<Figure>> {
    let began = Instant::now();
    let others = std::thread::scope(|scope| {
        let reader = |pause: Duration, first: Duration| {
            scope.spawn(move || -> Outcome<()> {
                let mut connection = server.connect()?;
                connection.receive_little();
                let wait = |n| {
                    std::thread::sleep(if n == 1 { first } else { pause });
                    false
                };
                match long.case.stream(&mut connection, &[], wait)? {
                    Reading::Whole(answer) if answer == long.answer => Ok(()),
                    Reading::Whole(answer) => Err(format!("a slow reader got {answer:?}").into()),
                    _ => Err("a slow reader was refused".into()),
                }
            })
        };
        let (brief, none) = (Duration::from_millis(15), Duration::ZERO);
        let readers: Vec<_> = (0..6)
            .map(|i| if i % 2 == 0 { reader(brief, none) } else { reader(none, Duration::from_secs(2)) })
            .collect();
        let right = answers_are_right(server, few);
        let others = began.elapsed();
        for reader in readers {
            reader.join().map_err(|_| "a reader panicked")??;
        }
        right.map(|()| others)
    })?;
    println!("  slow readers: others were answered within {:.1} s", others.as_secs_f64());
    server.idle(Duration::from_secs(10))?;
    Ok(vec![])
}

/// Clients that go away: what they asked for stops.
pub fn vanishing_readers(server: &Server, few: &[Known], long: &Known) -> Outcome<Vec<Figure>> {
    let mut random = Random(7);
    let mut connections = vec![];
    for i in 0..48 {
        let mut connection = server.connect()?;
        let salt = [("cache_salt", json!(format!("vanishing {i}"))), ("stream", json!(i % 3 > 0))];
        connection.send("POST", long.case.path, Some(&long.case.bytes(&salt)))?;
        if random.once_in(2) {
            std::thread::sleep(Duration::from_millis(random.below(40) as u64));
        }
        connections.push(connection);
    }
    let busy = server.busy()?;
    for (i, mut connection) in connections.into_iter().enumerate() {
        if i % 3 > 0 && i < 12 {
            // A few after the beginning of the answer.
            connection.head()?;
        }
        match i % 4 {
            0 => connection.reset(),
            1 => drop(connection.stream.shutdown(Shutdown::Write)),
            _ => drop(connection),
        }
    }
    let free = server.idle(Duration::from_secs(20))?;
    println!("  48 readers vanished ({} requests were there): all is free after {:.2} s", busy.0, free.as_secs_f64());
    if busy.0 < 24.0 {
        return Err(format!("only {} requests were there to be left", busy.0).into());
    }
    answers_are_right(server, few)?;
    Ok(vec![Figure::new("faults: all free after readers vanish", free.as_secs_f64(), "s").at_most(2.0)])
}

/// What is no HTTP, or too much of it.
pub fn header_floods(server: &mut Server, few: &[Known]) -> Outcome<Vec<Figure>> {
    // Headers that never end; looked at again below.
    let mut slow = vec![];
    for _ in 0..100 {
        let mut connection = server.connect()?;
        connection.stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-slow: ")?;
        slow.push(connection);
    }
    let began = Instant::now();
    let many = |n: usize, length: usize| -> Vec<u8> {
        let lines: String = (0..n).map(|i| format!("x-flood-{i}: {}\r\n", "y".repeat(length))).collect();
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n").into_bytes()
    };
    let mut random = Random(3);
    let garbage: Vec<u8> = (0..100_000).map(|_| random.next() as u8).collect();
    let floods: [(&str, Vec<u8>); 8] = [
        ("500 headers", many(500, 10)),
        ("100,000 headers", many(100_000, 1)),
        ("a header of 1 MB", many(1, 1 << 20)),
        ("50 headers of 20 kB", many(50, 20_000)),
        ("a path of 1 MB", format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "z".repeat(1 << 20)).into_bytes()),
        ("garbage", garbage),
        (
            "two lengths",
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n{}{}{}"
                .to_vec(),
        ),
        (
            "a length that is none",
            b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n{}".to_vec(),
        ),
    ];
    for (name, bytes) in &floods {
        let mut connection = server.connect()?;
        // It may be closed before all is sent, and then a reset may overtake the answer.
        let sent = connection.stream.write_all(bytes).and_then(|()| connection.stream.shutdown(Shutdown::Write));
        match connection.response() {
            Ok(response) if (400..500).contains(&response.status()) => {}
            Ok(response) => return Err(format!("{name}: {} {}", response.status(), response.text()).into()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                return Err(format!("{name}: no answer").into());
            }
            Err(_) => drop(sent),
        }
    }
    // Many requests at once on one connection are answered in their order.
    let mut connection = server.connect()?;
    connection.stream.write_all(&b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100))?;
    for i in 0..100 {
        match connection.response()?.status() {
            200 => {}
            status => return Err(format!("request {i} of 100 on one connection: {status}").into()),
        }
    }
    answers_are_right(server, few)?;
    // Whoever does not finish the headers is sent away.
    let closed = |connections: &mut Vec<crate::http::Connection>| {
        connections.iter_mut().filter_map(|c| c.is_over().then_some(())).count()
    };
    while closed(&mut slow) < slow.len() {
        if began.elapsed() > Duration::from_secs(20) {
            let open = slow.len() - closed(&mut slow);
            return Err(format!("{open} of 100 connections whose headers do not end are open after 20 s").into());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    println!(
        "  floods: {} kinds turned away; headers that do not end: closed after {:.0} s",
        floods.len(),
        began.elapsed().as_secs_f64()
    );
    server.is_well()?;
    Ok(vec![])
}

/// Bodies and prompts that are too large: a clear error, and no memory for them.
pub fn oversized(server: &mut Server, few: &[Known]) -> Outcome<Vec<Figure>> {
    let before = server.holdings()?.memory_kb;
    let words = "word ".repeat(400_000);
    let completion = |prompt: Value| ("/v1/completions", json!({ "prompt": prompt, "max_tokens": 1 }));
    let messages = |content: &str, n: usize| {
        let one = json!({ "role": "user", "content": content });
        ("/v1/chat/completions", json!({ "messages": vec![one; n], "max_tokens": 1 }))
    };
    let bodies = [
        ("a prompt of 2 MB", completion(json!(words))),
        ("a prompt of 200,000 tokens", completion(json!(vec![100; 200_000]))),
        ("a message of 2 MB", messages(&words, 1)),
        ("20,000 messages", messages("hello", 20_000)),
        ("max_tokens of 10^9", ("/v1/completions", json!({ "prompt": "a", "max_tokens": 1_000_000_000 }))),
        (
            "100,000 stop strings",
            ("/v1/completions", json!({ "prompt": "a", "max_tokens": 1, "stop": vec!["x"; 100_000] })),
        ),
    ];
    for (name, (path, body)) in bodies {
        let began = Instant::now();
        let response = server.post(path, body.to_string().as_bytes())?;
        refused(name, &response, 400)?;
        if began.elapsed() > Duration::from_secs(5) {
            return Err(format!("{name}: refused after {:?} only", began.elapsed()).into());
        }
    }
    let deep = format!("{{\"prompt\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    refused("100,000 brackets", &server.post("/v1/completions", deep.as_bytes())?, 400)?;

    // More than a body may have: told before all of it is there.
    let big = vec![b' '; 20 << 20];
    let head = |length: &str| {
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{length}\r\n\r\n"
        )
    };
    for (name, head, body) in [
        ("20 MB", head("content-length: 20971520"), &big[..]),
        ("10 GB that never come", head("content-length: 10000000000"), b""),
        ("chunks of 20 MB", head("transfer-encoding: chunked"), &[b"1400000\r\n", &big[..], b"\r\n"].concat()[..]),
    ] {
        let mut connection = server.connect()?;
        connection.stream.write_all(head.as_bytes())?;
        let sent = connection.stream.write_all(body);
        match connection.response() {
            Ok(response) => refused(name, &response, 413)?,
            // It was closed while more came, and a reset took the answer with it.
            Err(error) if sent.is_err() || error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(format!("{name}: {error}").into()),
        }
    }
    answers_are_right(server, few)?;
    server.is_well()?;
    let growth = (server.holdings()?.memory_kb as f64 - before as f64) / 1024.0;
    println!("  oversized: all refused; {growth:.0} MB of memory more");
    Ok(vec![Figure::new("faults: memory for oversized requests", growth.max(0.0), "MB").at_most(128.0)])
}

/// It must be this status, with an error in the form of OpenAI's API.
fn refused(name: &str, response: &crate::http::Response, status: u16) -> Outcome<()> {
    let message = response.json().ok().and_then(|body| body["error"]["message"].as_str().map(str::to_owned));
    match message {
        Some(message) if response.status() == status && !message.is_empty() && message.len() < 2000 => Ok(()),
        _ => Err(format!("{name}: {} {:.300}", response.status(), response.text()).into()),
    }
}
