//! `tegula bench`: how fast a model computes (`speed`), an engine works through requests (`throughput`, `latency`), and a
//! server answers (`serve`). The last three have the options and the output of `vllm bench`.

mod arrivals;
mod client;
mod dataset;
mod date;
mod latency;
mod offline;
mod report;
mod serve;
mod sharegpt;
mod speed;
mod sse;
#[cfg(test)]
mod tests;
mod throughput;
mod words;

use std::io::Write;
use std::path::Path;

use tegula_engine::Error;

/// Measure speed: of a model (`tegula bench MODEL`), of an engine, or of any server with OpenAI's API
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  tegula bench smollm2\n  tegula bench smollm2 --threads 1 --repeat 10 --json\n  \
                  tegula bench serve --port 8000 --max-concurrency 16 --num-prompts 64\n  \
                  tegula bench throughput smollm2 --num-prompts 32\n  tegula bench latency smollm2 --batch-size 4"
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    speed: Option<speed::Args>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Speed(speed::Args),
    Serve(Box<serve::Args>),
    Throughput(Box<throughput::Args>),
    Latency(Box<latency::Args>),
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match (args.what, args.speed) {
        (Some(What::Speed(args)), _) | (None, Some(args)) => speed::run(args, out),
        (Some(What::Serve(args)), _) => serve::run(*args, out),
        (Some(What::Throughput(args)), _) => throughput::run(*args, out),
        (Some(What::Latency(args)), _) => latency::run(*args, out),
        // The parser wants MODEL where there is no subcommand.
        (None, None) => Err(Error::Usage("tegula bench: name a model, or what to measure (see --help)".to_owned())),
    }
}

/// Writes a result as JSON, as it is written for people: two spaces a level.
fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), Error> {
    std::fs::write(path, format!("{value:#}\n"))
        .map_err(|e| Error::Usage(format!("the result cannot be written to {}: {e}", path.display())))
}
