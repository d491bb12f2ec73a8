//! A server in a process of its own, for tests of signals: this same program, told to serve.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tegula_engine::engine::Engine;
use tegula_server::signals::{self, Signals};
use tegula_server::{Server, ServerConfig};

use super::client::Client;
use super::server::scripted;
use super::vocabulary::{CHATML, template, tokenizer};

const PORT: &str = "serves at ";

/// The process.
pub struct Child {
    process: std::process::Child,
    pub client: Client,
}

impl Child {
    /// Runs this test again with `variable` set, in which case it calls [`serve`].
    pub fn start(test: &str, variable: &str) -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args([test, "--exact", "--nocapture"]).env(variable, "1").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().expect("this program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let addr =
            lines.by_ref().find_map(|line| Some(line.ok()?.split_once(PORT)?.1.trim().parse().expect("an address")));
        let client = Client::new(addr.expect("it says where it serves"));
        // What the harness writes later must find a reader.
        std::thread::spawn(move || lines.count());
        Child { process, client }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a process that was not waited for yet, so its number is nobody else's.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    pub fn exit_code(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            match self.process.try_wait().expect("a child can be waited for") {
                Some(status) => return status.code(),
                None => assert!(start.elapsed() < Duration::from_secs(10), "it does not end"),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Serves until signals end it.
pub fn serve() {
    let model = scripted().step_time(Duration::from_millis(5));
    let engine = Engine::builder("test-model").build_on(model, tokenizer(false), Some(template(CHATML)));
    let runtime = tegula_server::runtime().expect("a runtime");
    runtime.block_on(async {
        let signals = Signals::new().expect("signals");
        let server = Server::bind("127.0.0.1:0", ServerConfig::default()).expect("a free port");
        let app = server.app().clone();
        app.serve_with(engine.expect("an engine"));
        println!("{PORT}{}", server.addr());
        std::io::stdout().flush().expect("somebody reads");
        server.run(signals::stop(app, signals, Duration::from_secs(10))).await.expect("served");
    });
}
