//! `tegula serve`: a model behind OpenAI's API, and a page to talk with it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tegula_engine::{Engine, Error};
use tegula_server::signals::{self, Signals};
use tegula_server::trace::Spans;
use tegula_server::{App, Keys, Server, ServerConfig};
use tokio::sync::oneshot;

use super::engine::EngineArgs;
use super::log::Format;
use super::model::Load;
use super::note;
use super::numbers::whole;

/// Where keys may be, besides the options.
const KEY_VARIABLE: &str = "TEGULA_API_KEY";

/// Serve a model: OpenAI's API, and a page to talk with it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tegula serve smollm2\n  \
                        tegula serve smollm2 --port 8080 --max-model-len 2048 --api-key secret\n  \
                        tegula serve ./model.gguf --host 0.0.0.0 --api-key-file keys --served-model-name chat")]
pub(super) struct Args {
    #[command(flatten)]
    load: Load,

    /// Where to listen: this machine alone, unless it says otherwise (0.0.0.0: everybody)
    #[arg(long, default_value = "127.0.0.1")]
    host: String,

    /// The port; 0: any that is free
    #[arg(long, default_value_t = 8000, value_parser = whole::<u16>(0..=65535), allow_negative_numbers = true)]
    port: u16,

    /// A key of which requests must have one, as `Authorization: Bearer KEY`; may be given several times. Others can see a
    /// program's arguments: TEGULA_API_KEY or --api-key-file keep a secret better
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,

    /// A file with a key on each line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Names that requests call the model by; the first is the one in answers and metrics [default: MODEL]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    served_model_name: Vec<String>,

    #[command(flatten)]
    engine: EngineArgs,

    /// Refuse requests with unknown parameters, instead of naming them in a header of the answer
    #[arg(long, help_heading = "HTTP")]
    strict_parameters: bool,

    /// Origins whose pages may use the server, as https://example.org; `*`: all
    #[arg(long, value_name = "ORIGIN", num_args = 1.., alias = "cors-allow-origin", help_heading = "HTTP")]
    allowed_origins: Vec<String>,

    /// Ask for a key at /metrics too
    #[arg(long, help_heading = "HTTP")]
    protect_metrics: bool,

    /// Most MiB of a request's body
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = whole::<usize>(1..=1024), allow_negative_numbers = true, help_heading = "HTTP")]
    max_body: usize,

    /// Most connections at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = whole::<usize>(1..=1 << 20), allow_negative_numbers = true, help_heading = "HTTP")]
    max_connections: usize,

    /// Most requests that are prepared at once [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=1024), allow_negative_numbers = true, help_heading = "HTTP")]
    max_blocking: Option<usize>,

    /// Seconds that requests have to be finished after SIGTERM or Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = whole::<u64>(0..=86_400), allow_negative_numbers = true, help_heading = "HTTP")]
    grace: u64,

    /// How lines of the log are written
    #[arg(long, value_enum, default_value = "text", help_heading = "Observation")]
    pub log_format: Format,

    /// Where spans are sent: an OTLP/HTTP endpoint, as http://localhost:4318/v1/traces
    #[arg(long, value_name = "URL", help_heading = "Observation")]
    otlp_traces_endpoint: Option<String>,
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    let began = Instant::now();
    let config = args.config()?;
    let open = config.api_keys.is_empty();
    let key = if open { None } else { Some(args.shown_key()) };
    allow_files();
    // First of all, so that who asks for the server meanwhile learns that it is loading.
    let server = Server::bind((args.host.as_str(), args.port), config).map_err(|e| args.cannot_listen(&e))?;
    let (addr, app) = (server.addr(), server.app().clone());
    tracing::info!("listening at {addr}; the model is loading");
    if open && !addr.ip().is_loopback() {
        note(format_args!(
            "everybody who can reach {addr} can use the server: --api-key or --api-key-file asks for a key"
        ));
    }
    let io = |doing| move |source| Error::Io { doing, source };
    let runtime = tegula_server::runtime().map_err(io("starting the server's threads"))?;
    let served = runtime.block_on(async {
        let signals = Signals::new().map_err(io("handling signals"))?;
        let stop = signals::stop(app.clone(), signals, Duration::from_secs(args.grace));
        let mut serving = std::pin::pin!(server.run(stop));
        let engine = tokio::select! {
            // It was told to end while it was loading.
            ended = &mut serving => return ended.map_err(io("serving")),
            engine = args.load()? => engine?,
        };
        app.serve_with(engine.clone());
        // Nobody may be there to read it.
        let _ = greet(out, &engine, addr, key, began.elapsed());
        serving.await.map_err(io("serving"))
    });
    end(&app);
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

impl Args {
    fn config(&self) -> Result<ServerConfig, Error> {
        let mut keys = self.api_key.clone();
        keys.extend(key_of(std::env::var_os(KEY_VARIABLE))?);
        if let Some(path) = &self.api_key_file {
            let text = fs::read_to_string(path);
            let text = text.map_err(|e| Error::Usage(format!("--api-key-file {}: {e}", path.display())))?;
            keys.extend(text.lines().map(str::to_owned));
        }
        let asked = !self.api_key.is_empty() || self.api_key_file.is_some();
        let api_keys = Keys::new(&keys);
        if asked && api_keys.is_empty() {
            return Err(Error::Usage("the API keys are all empty: a key must have a character at least".into()));
        }
        let defaults = ServerConfig::default();
        Ok(ServerConfig {
            api_keys,
            protect_metrics: self.protect_metrics,
            allowed_origins: origins(&self.allowed_origins)?,
            aliases: self.served_model_name.iter().skip(1).cloned().collect(),
            strict_parameters: self.strict_parameters,
            max_body: self.max_body << 20,
            max_connections: self.max_connections,
            max_blocking: self.max_blocking.unwrap_or(defaults.max_blocking),
            ..defaults
        })
    }

    /// How a line for a shell names a key: one from the environment is there, others are not to be shown.
    fn shown_key(&self) -> String {
        let in_shell = std::env::var_os(KEY_VARIABLE).is_some_and(|key| !key.is_empty());
        if in_shell { format!("${KEY_VARIABLE}") } else { "KEY".into() }
    }

    fn name(&self) -> String {
        self.served_model_name.first().cloned().unwrap_or_else(|| self.load.name())
    }

    /// Loads the model, on a thread of its own.
    fn load(&self) -> Result<impl Future<Output = Result<Engine, Error>> + use<>, Error> {
        let (load, name) = (self.load.clone(), self.name());
        let mut builder = self.engine.builder(&name);
        if let Some(endpoint) = &self.otlp_traces_endpoint {
            let spans = Spans::otlp(endpoint, &name);
            let spans = spans.map_err(|e| Error::Usage(format!("--otlp-traces-endpoint {endpoint}: {e}")))?;
            builder = builder.observer(Arc::new(spans));
        }
        let (loaded, engine) = oneshot::channel();
        let thread = std::thread::Builder::new().name("tegula-load".into());
        let spawned = thread.spawn(move || {
            // Nobody waits any more if the server was told to end.
            let _ = loaded.send(load.engine(builder));
        });
        spawned.map_err(|source| Error::Io { doing: "starting a thread", source })?;
        Ok(async { engine.await.unwrap_or_else(|_| Err(Error::Usage("loading the model failed".into()))) })
    }

    fn cannot_listen(&self, error: &io::Error) -> Error {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "; --port names another port, 0 any that is free",
            io::ErrorKind::PermissionDenied => "; ports below 1024 are for root",
            _ => "",
        };
        Error::Usage(format!("listening at {}:{}: {error}{hint}", self.host, self.port))
    }
}

/// The key in an environment variable. One that is set and is none is a mistake: without a key the server is open.
fn key_of(variable: Option<OsString>) -> Result<Option<String>, Error> {
    let Some(key) = variable.filter(|key| !key.is_empty()) else { return Ok(None) };
    match key.into_string() {
        Ok(key) if key.trim().is_empty() => {
            Err(Error::Usage(format!("{KEY_VARIABLE} is only white space: a key must have a character at least")))
        }
        Ok(key) => Ok(Some(key)),
        Err(_) => Err(Error::Usage(format!("{KEY_VARIABLE} is not UTF-8: a key is a text"))),
    }
}

/// Checks origins. vLLM takes them as a JSON list, and so may they be here.
fn origins(given: &[String]) -> Result<Vec<String>, Error> {
    let mut all = vec![];
    for text in given {
        match serde_json::from_str::<Vec<String>>(text) {
            Ok(list) => all.extend(list),
            Err(_) => all.push(text.clone()),
        }
    }
    for origin in &all {
        let rest = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        let is_one = rest.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' ', ','])) || origin == "null";
        if origin != "*" && !is_one {
            let right =
                "an origin is http:// or https:// with a host and perhaps a port, and nothing after it; `*` is all";
            return Err(Error::Usage(format!("--allowed-origins `{origin}`: {right}")));
        }
    }
    Ok(all)
}

/// What one wants to know of a server that is ready: what it has, and how to use it.
fn greet(
    out: &mut dyn Write,
    engine: &Engine,
    addr: SocketAddr,
    key: Option<String>,
    took: Duration,
) -> io::Result<()> {
    let url = format!("http://{}", reachable(addr));
    writeln!(out, "{}", engine.memory())?;
    writeln!(out, "\n{} is ready after {:.2} s.", engine.name(), took.as_secs_f64())?;
    writeln!(out, "A page to talk with it:  {url}/")?;
    writeln!(out, "Or, from a shell:\n\n{}\n", example(engine, &url, key.as_deref()))?;
    writeln!(out, "Ctrl-C ends it.")?;
    out.flush()
}

/// A line for a shell.
fn example(engine: &Engine, url: &str, key: Option<&str>) -> String {
    let name = engine.name();
    let (path, body) = match engine.template() {
        Some(_) => (
            "chat/completions",
            serde_json::json!({ "model": name, "messages": [{ "role": "user", "content": "Why is the sky blue?" }] }),
        ),
        None => {
            ("completions", serde_json::json!({ "model": name, "prompt": "The sky is blue because", "max_tokens": 50 }))
        }
    };
    let key = key.map_or(String::new(), |key| format!(" -H \"Authorization: Bearer {key}\""));
    let body = body.to_string().replace('\'', r"'\''");
    format!("curl {url}/v1/{path} -H 'Content-Type: application/json'{key} -d '{body}'")
}

/// An address that a client on this machine can use.
fn reachable(mut addr: SocketAddr) -> SocketAddr {
    match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => addr.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => addr.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    addr
}

/// As many open files as the system allows: each connection is one.
fn allow_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // With fewer it serves fewer.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Ends the engine; but who hangs would hang here for ever, so its threads are left to end with the process.
fn end(app: &App) {
    if let Ok(engine) = app.engine()
        && !engine.is_idle()
        && engine.last_step_age() > engine.heartbeat()
    {
        std::mem::forget(engine.clone());
    }
}

#[cfg(test)]
mod tests;
