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

use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use tegula_engine::Error;

/// What to measure: a subcommand's subject, or without one a model's speed.
#[derive(Debug)]
pub(super) struct Args(What);

const ABOUT: &str =
    "Measure speed: of a model (`tegula bench MODEL`), of an engine, or of any server with OpenAI's API";
const EXAMPLES: &str = "Examples:\n  tegula bench smollm2\n  tegula bench smollm2 --threads 1 --repeat 10 --json\n  \
                        tegula bench serve --port 8000 --max-concurrency 16 --num-prompts 64\n  \
                        tegula bench throughput smollm2 --num-prompts 32\n  tegula bench latency smollm2 --batch-size 4";

// By hand, since derived parsers cannot have arguments of which all are required unless there is a subcommand.
impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        let command = What::augment_subcommands(<speed::Args as clap::Args>::augment_args(command))
            .about(ABOUT)
            .after_help(EXAMPLES);
        command.subcommand_required(false).args_conflicts_with_subcommands(true).subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        <Self as clap::Args>::augment_args(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Args, clap::Error> {
        match matches.subcommand_name() {
            Some(_) => What::from_arg_matches(matches),
            None => speed::Args::from_arg_matches(matches).map(What::Speed),
        }
        .map(Args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Args::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Speed(speed::Args),
    Serve(Box<serve::Args>),
    Throughput(Box<throughput::Args>),
    Latency(Box<latency::Args>),
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.0 {
        What::Speed(args) => speed::run(args, out),
        What::Serve(args) => serve::run(*args, out),
        What::Throughput(args) => throughput::run(*args, out),
        What::Latency(args) => latency::run(*args, out),
    }
}

/// Writes a result as JSON, as it is written for people: two spaces a level.
fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), Error> {
    std::fs::write(path, format!("{value:#}\n"))
        .map_err(|e| Error::Usage(format!("the result cannot be written to {}: {e}", path.display())))
}
