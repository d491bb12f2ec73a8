//! A server in this process, on a port of its own.

use std::time::{Duration, Instant};

use tegula_engine::engine::{Engine, EngineBuilder, Scripted, StepModel};
use tegula_server::{App, Running, ServerConfig};

use super::client::Client;
use super::vocabulary::{CHATML, VOCAB, template, tokenizer};

/// A server. When it is dropped, its engine must have become idle with every block where it belongs.
pub struct Server {
    pub client: Client,
    pub engine: Engine,
    /// Most bytes of a body.
    pub max_body: usize,
    /// Whether nothing is to be checked at the end: its engine was broken on purpose.
    pub broken: bool,
    running: Running,
}

/// A model of the tests' vocabulary with 256 blocks of 16 tokens, and a context of 512. It says random text.
pub fn scripted() -> Scripted {
    Scripted::new(VOCAB, 16, 256, 512)
}

impl Server {
    /// Serves a scripted model that wants no BOS.
    pub fn start(model: Scripted) -> Server {
        Server::with(model, false, CHATML, |engine| engine)
    }

    /// Serves a model of the tests' vocabulary.
    pub fn with(
        model: impl StepModel,
        add_bos: bool,
        chat: &str,
        tune: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Server {
        let builder = tune(Engine::builder("test-model"));
        let engine = builder.build_on(model, tokenizer(add_bos), Some(template(chat))).expect("an engine");
        Server::of(engine, ServerConfig::default())
    }

    /// Serves a scripted model in another way.
    pub fn configured(model: Scripted, config: ServerConfig) -> Server {
        let engine = Engine::builder("test-model").build_on(model, tokenizer(false), Some(template(CHATML)));
        Server::of(engine.expect("an engine"), config)
    }

    /// Serves an engine.
    pub fn of(engine: Engine, config: ServerConfig) -> Server {
        let max_body = config.max_body;
        let server = tegula_server::Server::bind("127.0.0.1:0", config).expect("a free port");
        server.app().serve_with(engine.clone());
        let running = server.start().expect("a server");
        Server { client: Client::new(running.addr()), engine, max_body, broken: false, running }
    }

    /// The state of its endpoints.
    #[allow(dead_code)] // Not all that share this file ask for it.
    pub fn app(&self) -> &App {
        self.running.app()
    }

    /// Waits until nothing runs or waits.
    #[track_caller]
    pub fn wait_idle(&self) {
        self.wait("the engine is idle", || self.engine.is_idle());
    }

    /// Waits until something holds.
    #[track_caller]
    pub fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(10), "not so after 10 s: {what}: {:?}", self.engine.stats());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The value of a metric without labels, or the sum over those with these labels.
    #[track_caller]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.client.get("/metrics").text();
        let lines = text.lines().filter(|line| {
            let rest = line.strip_prefix(name);
            rest.is_some_and(|r| r.starts_with(['{', ' '])) && labels.iter().all(|label| line.contains(label))
        });
        let values: Vec<f64> = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
        assert!(!values.is_empty(), "no metric {name} {labels:?} in\n{text}");
        values.iter().sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.broken {
            self.wait_idle();
            let stats = self.engine.stats();
            assert_eq!(self.engine.check_integrity(), Ok(()));
            assert_eq!(stats.scheduler.kv.used, 0, "nobody holds blocks: {stats:?}");
        }
    }
}
