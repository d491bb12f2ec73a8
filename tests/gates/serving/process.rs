//! The two servers as processes, and the client that both are measured with.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{ANSWER, Load, Run, THREADS};
use crate::Outcome;

/// llama.cpp's server: the program that TEGULA_LLAMA_SERVER names.
pub fn peer() -> Option<PathBuf> {
    std::env::var_os("TEGULA_LLAMA_SERVER").map(PathBuf::from)
}

/// A server that runs until it is dropped.
pub struct Server {
    child: Child,
    address: String,
    pub name: &'static str,
    /// Its settings.
    pub about: String,
}

/// Tokens that each client of the peer has room for.
const CONTEXT: usize = 1024 + ANSWER + 64;

impl Server {
    /// Ours, as it is without options.
    pub fn tegula(model: &Path) -> Outcome<Server> {
        let mut command = Command::new(program("tegula")?);
        command.arg("serve").arg(model).args(["--port", "0", "--threads", &THREADS.to_string()]);
        // Its log has a line for each request.
        command.env("TEGULA_LOG", "error");
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let found =
            first(&mut child, |line| Some(line[line.find("http://")?..].split_whitespace().next()?.to_owned()))?;
        Ok(Server { child, address: found.trim_end_matches('/').to_owned(), name: "tegula", about: String::new() })
    }

    /// llama.cpp's at its best: a slot for each client, one pool of cells, continuous batching, prompts cached, flash
    /// attention where it helps.
    pub fn llama(program: &Path, model: &Path, clients: usize) -> Outcome<Server> {
        let (slots, context, threads) = (clients.to_string(), (clients * CONTEXT).to_string(), THREADS.to_string());
        let settings = [
            "--parallel",
            &slots,
            "--ctx-size",
            &context,
            "--threads",
            &threads,
            "--threads-batch",
            &threads,
            "--kv-unified",
            "--cont-batching",
            "--cache-prompt",
            "--flash-attn",
            "auto",
            "--batch-size",
            "2048",
            "--ubatch-size",
            "512",
        ];
        // Free now, and nobody else is likely to take it within a moment.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut command = Command::new(program);
        command.arg("--model").arg(model).args(["--host", "127.0.0.1", "--port", &port, "--no-webui"]).args(settings);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let about = settings.join(" ");
        Ok(Server { child, address: format!("http://127.0.0.1:{port}"), name: "llama.cpp", about })
    }

    /// Puts the load on it; what came of it, and how many tokens it counted.
    pub fn run(&self, load: Load, seed: u64, model: &Path) -> Outcome<(Run, usize)> {
        let result = std::env::temp_dir().join(format!("tegula-serving-{}.json", std::process::id()));
        let mut command = Command::new(program("tegula")?);
        command.args(["bench", "serve", "--base-url", &self.address, "--tokenizer"]).arg(model);
        let number = |n: usize| n.to_string();
        command.args(["--num-prompts", &number(load.requests()), "--max-concurrency", &number(load.clients)]);
        command.args(["--seed", &seed.to_string(), "--num-warmups", "1", "--ignore-eos", "--disable-tqdm"]);
        command.args(["--output-len", &number(ANSWER), "--save-result", "--result-filename"]).arg(&result);
        if load.shared {
            let (prefix, rest) = (number(load.prefix()), number(load.prompt - load.prefix()));
            command.args(["--dataset-name", "prefix_repetition", "--prefix-repetition-num-prefixes", "1"]);
            command.args(["--prefix-repetition-prefix-len", &prefix, "--prefix-repetition-suffix-len", &rest]);
        } else {
            command.args(["--dataset-name", "random", "--input-len", &number(load.prompt)]);
        }
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{}: {}", self.name, String::from_utf8_lossy(&output.stderr)).into());
        }
        let json: Value = serde_json::from_slice(&std::fs::read(&result)?)?;
        std::fs::remove_file(&result)?;
        let figure = |name: &str| json[name].as_f64().ok_or(format!("tegula bench serve gave no {name}"));
        if figure("failed")? != 0.0 {
            return Err(format!("{}: {}", self.name, String::from_utf8_lossy(&output.stderr)).into());
        }
        let run = Run {
            total: figure("total_token_throughput")?,
            output: figure("output_throughput")?,
            ttft: figure("median_ttft_ms")?,
            tpot: figure("median_tpot_ms")?,
        };
        Ok((run, (figure("total_input_tokens")? + figure("total_output_tokens")?) as usize))
    }

    /// Stops it where it is: nothing of it runs beside the other.
    pub fn pause(&self) -> Outcome<()> {
        self.signal(libc::SIGSTOP)
    }

    pub fn resume(&self) -> Outcome<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> Outcome<()> {
        // SAFETY: a signal to a child that was not waited for, so that the number is still its own.
        match unsafe { libc::kill(self.child.id() as libc::pid_t, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that ended by itself was told of by the client's failure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the first line of a child's output that has it says; the rest is read and dropped.
fn first<T>(child: &mut Child, find: impl Fn(&str) -> Option<T>) -> Outcome<T> {
    let output = child.stdout.take().ok_or("a server without output")?;
    let mut lines = BufReader::new(output).lines();
    for line in lines.by_ref() {
        if let Some(found) = find(&line?) {
            // A full pipe would make it wait.
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(found);
        }
    }
    Err(format!("a server ended at once: {}", child.wait()?).into())
}

/// A program beside this one.
fn program(name: &str) -> Outcome<PathBuf> {
    let path = std::env::current_exe()?.with_file_name(name);
    if !path.is_file() {
        return Err(format!("{} is missing: build it, or use ./x bench serving", path.display()).into());
    }
    Ok(path)
}

/// The processor's name and what of its instructions matters here.
pub fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of =
        |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.split_once(": ")).map_or("", |(_, value)| value);
    let flags = of("flags");
    let known = ["avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8"];
    let has: Vec<&str> = known.into_iter().filter(|flag| flags.split(' ').any(|f| f == *flag)).collect();
    format!("{} ({})", of("model name").trim(), has.join(", "))
}

/// What a llama.cpp says of its version and compiler.
pub fn version(program: &Path) -> Outcome<String> {
    let output = Command::new(program).arg("--version").output()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let lines: Vec<&str> =
        text.lines().filter(|line| line.contains("version") || line.contains("built with")).collect();
    Ok(lines.join(", "))
}
