//! `tegula serve` as a child process, seen from outside: its socket, its metrics, and what the kernel says of it.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::http::{Connection, Response};

/// Longest that one answer may take, and that the server may take to start.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How to start it.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub program: PathBuf,
    pub model: String,
    /// Further arguments.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// Where it listens; `None` for a free port.
    pub port: Option<u16>,
}

/// A running one. It is killed when dropped.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// What it printed.
    log: PathBuf,
    /// From its start until it was ready.
    pub start: Duration,
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub memory_kb: u64,
    pub descriptors: usize,
    pub threads: usize,
}

impl Recipe {
    pub fn with(&self, arguments: &[&str]) -> Recipe {
        let mut recipe = self.clone();
        recipe.arguments.extend(arguments.iter().map(|argument| argument.to_string()));
        recipe
    }

    pub fn env(&self, name: &str, value: &Path) -> Recipe {
        let mut recipe = self.clone();
        recipe.environment.push((name.to_owned(), value.display().to_string()));
        recipe
    }

    pub fn at(&self, port: u16) -> Recipe {
        Recipe { port: Some(port), ..self.clone() }
    }

    /// Starts it and waits until it is ready.
    pub fn start(&self) -> Outcome<Server> {
        let port = match self.port {
            Some(port) => port,
            None => TcpListener::bind("127.0.0.1:0")?.local_addr()?.port(),
        };
        let log = std::env::temp_dir().join(format!("tegula-load-{}-{port}.log", std::process::id()));
        let output = File::options().create(true).append(true).open(&log)?;
        let started = Instant::now();
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(&self.model).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server { child, address, log, start: Duration::ZERO };
        loop {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("the server ended while it started ({status}):\n{}", server.said()).into());
            }
            if server.get("/ready").is_ok_and(|ready| ready.status() == 200) {
                server.start = started.elapsed();
                return Ok(server);
            }
            if started.elapsed() > PATIENCE {
                return Err(format!("the server is not ready after {PATIENCE:?}:\n{}", server.said()).into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Server {
    /// The end of what it printed.
    pub fn said(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Whether it printed this.
    pub fn has_said(&self, what: &str) -> bool {
        fs::read(&self.log).is_ok_and(|text| String::from_utf8_lossy(&text).contains(what))
    }

    /// A new connection.
    pub fn connect(&self) -> io::Result<Connection> {
        Connection::open(self.address, PATIENCE)
    }

    pub fn get(&self, path: &str) -> io::Result<Response> {
        Connection::open(self.address, Duration::from_secs(10))?.request("GET", path, None)
    }

    pub fn post(&self, path: &str, body: &[u8]) -> io::Result<Response> {
        self.connect()?.request("POST", path, Some(body))
    }

    /// The sum of a metric over its labels.
    pub fn metric(&self, name: &str) -> Outcome<f64> {
        let response = self.get("/metrics")?;
        let text = response.text();
        let values = text.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let is_it = rest.starts_with(['{', ' ']);
            is_it.then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
        });
        values.reduce(|a, b| a + b).ok_or_else(|| format!("/metrics has no {name}").into())
    }

    /// Requests that run or wait, and the share of the cache that they hold.
    pub fn busy(&self) -> Outcome<(f64, f64)> {
        let requests = self.metric("vllm:num_requests_running")? + self.metric("vllm:num_requests_waiting")?;
        Ok((requests, self.metric("vllm:kv_cache_usage_perc")?))
    }

    /// Waits until nothing runs, waits or holds a part of the cache: how long that took.
    pub fn idle(&self, most: Duration) -> Outcome<Duration> {
        let began = Instant::now();
        loop {
            let busy = self.busy()?;
            if busy == (0.0, 0.0) {
                return Ok(began.elapsed());
            }
            if began.elapsed() > most {
                let (requests, cache) = busy;
                return Err(
                    format!("after {most:?} there are {requests} requests left, and {cache} of the cache").into()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the process holds.
    pub fn holdings(&self) -> Outcome<Holdings> {
        let of = format!("/proc/{}", self.child.id());
        let status = fs::read_to_string(format!("{of}/status"))?;
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
        };
        let descriptors = fs::read_dir(format!("{of}/fd"))?.count();
        Ok(Holdings { memory_kb: number("VmRSS:"), descriptors, threads: number("Threads:") as usize })
    }

    /// Waits until it holds no more descriptors and threads than these; gives what it holds then, or at last.
    pub fn holdings_within(&self, most: &Holdings, patience: Duration) -> Outcome<Holdings> {
        let began = Instant::now();
        loop {
            let now = self.holdings()?;
            let within = now.descriptors <= most.descriptors && now.threads <= most.threads;
            if within || began.elapsed() > patience {
                return Ok(now);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Whether it runs and says that it is well.
    pub fn is_well(&mut self) -> Outcome<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("the server ended ({status}):\n{}", self.said()).into());
        }
        match self.get("/health")?.status() {
            200 => Ok(()),
            status => Err(format!("/health says {status}:\n{}", self.said()).into()),
        }
    }

    /// As by `kill -9`.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Asks it to end, as by `kill`.
    pub fn terminate(&self) {
        // SAFETY: a signal to a child that was not waited for, so the number is still its.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
    }

    /// Waits for its end.
    pub fn ended(&mut self, most: Duration) -> Outcome<ExitStatus> {
        let began = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) => return Ok(status),
                None if began.elapsed() > most => return Err(format!("the server still runs after {most:?}").into()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.kill();
        let _ = fs::remove_file(&self.log);
    }
}
