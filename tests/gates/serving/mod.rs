//! The engine behind its server beside llama.cpp's server: `gates serving [LOAD…]`, `./x bench serving`.
//!
//! Same model file, same requests, same client; 1, 4 and 16 clients, prompts of 128 and 1,024 tokens, each a text of its own
//! or with seven eighths that all share; 64 tokens of each answer, greedy. Both servers run in turn, and the one that is
//! not measured is stopped. Of each load there are [`ROUNDS`] rounds with other prompts each; figures are medians, and
//! ratios are medians of the rounds' ratios. Arguments: a load's name (`16x1024`, `4x128-shared`) or a part of it measures
//! only that, `round=0` only that round; `save` keeps what was measured in docs/perf/serving.json, with what was before, and
//! writes its page and plot.

mod page;
mod plot;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tegula_engine::pull::Source;
use tegula_tests::figure::Figure;

use crate::Outcome;
use crate::clock::median;
use crate::report::Gate;
use process::Server;

const ROUNDS: u64 = 3;
/// Tokens of each answer.
const ANSWER: usize = 64;
/// Threads of each server.
const THREADS: usize = 2;
const CLIENTS: [usize; 3] = [1, 4, 16];

/// What is asked of both servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Load {
    clients: usize,
    /// Tokens.
    prompt: usize,
    /// Whether all prompts have seven eighths in common.
    shared: bool,
}

/// A run of a load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    /// Of prompts and answers, per second.
    total: f64,
    /// Of answers, per second.
    output: f64,
    /// Median, in milliseconds.
    ttft: f64,
    /// Median, in milliseconds.
    tpot: f64,
}

/// Runs beside each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Pair {
    load: Load,
    /// Ours and theirs, by the round.
    rounds: BTreeMap<u64, [Run; 2]>,
}

/// docs/perf/serving.json
#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    processor: String,
    threads: usize,
    model: String,
    /// llama.cpp's version and compiler.
    peer: String,
    /// Its options, by how many clients they are for.
    options: BTreeMap<usize, String>,
    pairs: Vec<Pair>,
}

impl Load {
    fn all() -> Vec<Load> {
        let of = |clients| {
            [128, 1024].into_iter().flat_map(move |prompt| [false, true].map(|shared| Load { clients, prompt, shared }))
        };
        CLIENTS.into_iter().flat_map(of).collect()
    }

    fn name(self) -> String {
        format!("{}x{}{}", self.clients, self.prompt, if self.shared { "-shared" } else { "" })
    }

    /// For people.
    fn title(self) -> String {
        let clients = if self.clients == 1 { "1 client".to_owned() } else { format!("{} clients", self.clients) };
        format!("{clients}, {} tokens{}", self.prompt, if self.shared { ", shared" } else { "" })
    }

    /// Two for each client, and enough that one client's are no single sample.
    fn requests(self) -> usize {
        (2 * self.clients).max(8)
    }

    /// Of its prompts: none of another load or round are the same, or begin so.
    fn seed(self, round: u64) -> u64 {
        round * 1_000_000 + self.clients as u64 * 10_000 + self.prompt as u64 * 2 + u64::from(self.shared)
    }

    /// Tokens in front of each prompt that are the same in all.
    fn prefix(self) -> usize {
        if self.shared { self.prompt / 8 * 7 } else { 0 }
    }
}

impl Pair {
    fn ours(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.rounds.values().map(|[ours, _]| of(ours)))
    }

    fn theirs(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.rounds.values().map(|[_, theirs]| of(theirs)))
    }

    /// The median of the rounds' ratios.
    fn ratio(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.rounds.values().map(|[ours, theirs]| of(ours) / of(theirs)))
    }

    fn gates(&self) -> [Gate; 2] {
        let title = self.load.title();
        let figure = Figure::new(format!("serving, {title}: tokens/s / llama.cpp"), self.ratio(|r| r.total), "");
        let speed = match (self.load.clients, self.load.shared) {
            (16, false) => figure.at_least(1.0),
            (16, true) => figure.at_least(1.5),
            // Told, not judged: batches and shared prefixes must pay here.
            _ => figure,
        };
        let first = Figure::new(format!("serving, {title}: first token / llama.cpp"), self.ratio(|r| r.ttft), "");
        let shown = |value: f64, unit: &str| format!("{value:.0} {unit}");
        [
            Gate {
                figure: speed,
                ours: shown(self.ours(|r| r.total), "tokens/s"),
                beside: shown(self.theirs(|r| r.total), "tokens/s"),
            },
            Gate {
                figure: first.at_most(1.0),
                ours: shown(self.ours(|r| r.ttft), "ms"),
                beside: shown(self.theirs(|r| r.ttft), "ms"),
            },
        ]
    }
}

/// Measures the loads that `chosen` names parts of (all without any), writes the page and gives the gates.
pub fn gates(chosen: &[String]) -> Outcome<Vec<Gate>> {
    let (save, chosen): (Vec<&String>, Vec<&String>) = chosen.iter().partition(|arg| *arg == "save");
    let (rounds, names): (Vec<&String>, Vec<&String>) = chosen.into_iter().partition(|arg| arg.starts_with("round="));
    let rounds = match rounds.as_slice() {
        [] => (0..ROUNDS).collect(),
        some => some.iter().map(|arg| arg["round=".len()..].parse()).collect::<Result<Vec<u64>, _>>()?,
    };
    let loads: Vec<Load> = Load::all()
        .into_iter()
        .filter(|l| names.is_empty() || names.iter().any(|part| l.name().contains(*part)))
        .collect();
    if loads.is_empty() {
        let all: Vec<String> = Load::all().into_iter().map(Load::name).collect();
        return Err(format!("there is no such load; those there are: {}", all.join(", ")).into());
    }
    let Some(peer) = process::peer() else {
        tegula_tests::skip("no llama.cpp to serve beside: `./x bench serving` installs it");
        let not_here = |l: &Load| Gate::skipped(format!("serving, {}: tokens/s / llama.cpp", l.title()), 1.0);
        return Ok(loads.iter().map(not_here).collect());
    };
    let model = Source::parse("smollm2")?.fetch()?;
    let folder = docs();
    let mut results = if save.is_empty() { Results::default() } else { Results::read(&folder.join("serving.json")) };
    results.processor = process::processor();
    results.threads = THREADS;
    results.peer = process::version(&peer)?;
    results.model = model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut gates = vec![];
    for clients in CLIENTS {
        let loads: Vec<Load> = loads.iter().copied().filter(|l| l.clients == clients).collect();
        if loads.is_empty() {
            continue;
        }
        let ours = Server::tegula(&model)?;
        let theirs = Server::llama(&peer, &model, clients)?;
        results.options.insert(clients, theirs.about.clone());
        for load in loads {
            let mut pair = results
                .pairs
                .iter()
                .find(|p| p.load == load)
                .cloned()
                .unwrap_or(Pair { load, rounds: BTreeMap::new() });
            for &round in &rounds {
                pair.rounds.insert(round, measure(load, round, &ours, &theirs, &model)?);
            }
            gates.extend(pair.gates());
            results.pairs.retain(|p| p.load != load);
            results.pairs.push(pair);
            results.pairs.sort_by_key(|p| p.load);
            if !save.is_empty() {
                results.write(&folder)?;
            }
        }
    }
    Ok(gates)
}

/// One round: ours and theirs.
fn measure(load: Load, round: u64, ours: &Server, theirs: &Server, model: &Path) -> Outcome<[Run; 2]> {
    let one = |now: &Server, other: &Server| {
        other.pause()?;
        let run = now.run(load, load.seed(round), model);
        other.resume()?;
        let (run, tokens) = run?;
        let expected = load.requests() * (load.prompt + ANSWER);
        if tokens != expected {
            return Err(
                format!("{}: {} counts {tokens} tokens; {expected} were asked for", load.title(), now.name).into()
            );
        }
        println!(
            "{:<28} {:<9} {:>6.0} tokens/s, first token {:>6.0} ms, then {:>6.1} ms each",
            load.title(),
            now.name,
            run.total,
            run.ttft,
            run.tpot
        );
        Outcome::Ok(run)
    };
    // Who begins changes.
    if round.is_multiple_of(2) {
        let ours_first = one(ours, theirs)?;
        Ok([ours_first, one(theirs, ours)?])
    } else {
        let theirs_first = one(theirs, ours)?;
        Ok([one(ours, theirs)?, theirs_first])
    }
}

impl Results {
    /// What was measured before, if that can be read.
    fn read(path: &Path) -> Results {
        std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    fn write(&self, folder: &Path) -> Outcome<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("serving.json"), serde_json::to_string_pretty(self)? + "\n")?;
        std::fs::write(folder.join("serving.md"), page::text(self))?;
        std::fs::write(folder.join("serving.svg"), plot::svg(&self.pairs))?;
        Ok(())
    }
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/perf")
}
