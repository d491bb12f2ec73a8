//! `tegula serve` from outside, under load and under faults: many clients for minutes, `kill -9`, a full disk, readers that
//! are slow or vanish, floods, oversized and broken bodies. Its own small client speaks to the socket.
//!
//! ```text
//! load [--short] [--minutes M] [--clients N] [--fuzz N] [--seed S] [--model MODEL] [--tegula PROGRAM] [PART…]
//! ```
//!
//! Parts are `load`, `kill`, `disk`, `slow`, `vanish`, `floods`, `oversized` and `fuzz`; without any, all. `--short` takes a
//! minute or so in all. Ends with exit code 1 if anything is not as it should be.

mod cases;
mod faults;
mod fuzz;
mod http;
mod load;
mod random;
mod server;
mod traffic;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use tegula_tests::figure::Figure;

use cases::Case;
use server::Recipe;

/// What a part gives.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What the arguments say.
#[derive(Debug)]
pub struct Options {
    pub time: Duration,
    pub clients: usize,
    /// Bodies of the fuzzer.
    pub fuzz: usize,
    pub seed: u64,
    /// Different requests.
    cases: usize,
    recipe: Recipe,
    parts: Vec<String>,
}

const PARTS: [&str; 8] = ["load", "slow", "vanish", "floods", "oversized", "fuzz", "kill", "disk"];
/// What is served, unless the arguments say otherwise.
const MODEL: &str = "smollm2";
/// For keys and values: so little that all of it is in use soon, and that sequences have to wait and to start again.
const KV_MEMORY: &str = "96MiB";
/// Most tokens of a sequence while fuzzing: a body that asks for no end gets one soon.
const FUZZ_CONTEXT: &str = "192";

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Outcome<Options> {
    let beside = std::env::current_exe()?.with_file_name("tegula");
    let program = std::env::var_os("TEGULA").map_or(beside, PathBuf::from);
    let (environment, arguments) = (vec![], vec!["--kv-memory".into(), KV_MEMORY.into()]);
    let recipe = Recipe { program, model: MODEL.into(), arguments, environment, port: None };
    let mut options = Options {
        time: Duration::from_secs(600),
        clients: 64,
        fuzz: 100_000,
        seed: 1,
        cases: 36,
        recipe,
        parts: vec![],
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: a value is missing"));
        let number = |text: String| text.parse::<f64>().map_err(|e| format!("{arg} {text}: {e}"));
        match arg.as_str() {
            "--short" => {
                (options.time, options.fuzz, options.cases) = (Duration::from_secs(6), 4_000, 12);
            }
            "--minutes" => options.time = Duration::from_secs_f64(number(value()?)? * 60.0),
            "--clients" => options.clients = number(value()?)? as usize,
            "--fuzz" => options.fuzz = number(value()?)? as usize,
            "--seed" => options.seed = number(value()?)? as u64,
            "--model" => options.recipe.model = value()?,
            "--tegula" => options.recipe.program = value()?.into(),
            part if PARTS.contains(&part) => options.parts.push(part.to_owned()),
            other => return Err(format!("unknown argument {other}; parts are {}", PARTS.join(", ")).into()),
        }
    }
    Ok(options)
}

/// Runs the parts that were chosen; whether all is as it should be.
fn run(options: &Options) -> Outcome<bool> {
    if options.recipe.model == MODEL && tegula_tests::model(MODEL).is_none() {
        return Ok(true);
    }
    let wants = |part: &str| options.parts.is_empty() || options.parts.iter().any(|chosen| chosen == part);
    let recipe = &options.recipe;
    let mut server = recipe.start()?;
    println!("{} serves {}, ready after {:.2} s", recipe.program.display(), recipe.model, server.start.as_secs_f64());
    let began = Instant::now();
    let known = traffic::alone(&server, cases::cases(options.seed, options.cases))?;
    let long = traffic::alone(&server, vec![long_case()])?.remove(0);
    println!("{} requests alone took {:.1} s", known.len() + 1, began.elapsed().as_secs_f64());
    let few = &known[..known.len().min(6)];

    let mut report = Report::default();
    let serving = ["load", "slow", "vanish", "floods", "oversized"];
    for part in serving.into_iter().filter(|part| wants(part)) {
        report.part(part, || match part {
            "load" => load::run(&mut server, &known, options),
            "slow" => faults::slow_readers(&server, few, &long),
            "vanish" => faults::vanishing_readers(&server, few, &long),
            "floods" => faults::header_floods(&mut server, few),
            _ => faults::oversized(&mut server, few),
        });
    }
    drop(server);
    if wants("fuzz") {
        report.part("fuzz", || fuzz::run(&mut recipe.with(&["--max-model-len", FUZZ_CONTEXT]).start()?, options));
    }
    if wants("kill") {
        report.part("kill", || faults::kill(recipe, few, &long));
    }
    if wants("disk") {
        report.part("disk", || faults::full_disk(recipe, few));
    }
    Ok(report.print())
}

/// An answer that takes long enough to do something meanwhile.
fn long_case() -> Case {
    let body = json!({ "prompt": "A long story:", "temperature": 0, "max_tokens": 160, "ignore_eos": true });
    let serde_json::Value::Object(body) = body else { unreachable!("it is an object") };
    Case { name: "long".into(), path: "/v1/completions", body }
}

/// What was found.
#[derive(Default)]
struct Report {
    /// A name, seconds, and what is wrong.
    parts: Vec<(String, f64, Option<String>)>,
    figures: Vec<Figure>,
}

impl Report {
    fn part(&mut self, name: &str, run: impl FnOnce() -> Outcome<Vec<Figure>>) {
        println!("\n{name}");
        let began = Instant::now();
        let wrong = match run() {
            Ok(figures) => {
                let wrong = figures.iter().find(|figure| !figure.holds()).map(|figure| figure.to_string());
                self.figures.extend(figures);
                wrong
            }
            Err(error) => Some(error.to_string()),
        };
        self.parts.push((name.to_owned(), began.elapsed().as_secs_f64(), wrong));
    }

    /// Prints the tables and records the figures; whether nothing is wrong.
    fn print(&self) -> bool {
        println!();
        for figure in &self.figures {
            println!("{:<62} {:>16}  {:<10} {}", figure.name, figure.shown(), figure.bound, figure.verdict());
        }
        println!();
        for (name, seconds, wrong) in &self.parts {
            println!(
                "{name:<10} {seconds:>6.1} s  {}",
                wrong.as_deref().map_or("pass".into(), |wrong| format!("FAIL {wrong}"))
            );
        }
        let failed = self.parts.iter().filter(|part| part.2.is_some()).count();
        self.figures.iter().for_each(Figure::record);
        let parts = Figure::new("load and faults: parts that failed", failed as f64, "").at_most(0.0);
        parts.record();
        println!("\n{} parts, {failed} failed", self.parts.len());
        failed == 0
    }
}
