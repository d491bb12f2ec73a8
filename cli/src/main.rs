//! The `tegula` command: one file per subcommand, each with its arguments and a `run` that writes to a given output.

mod answer;
mod bench;
mod bundle;
mod compile;
mod engine;
mod eval;
mod inspect;
mod kernel_stats;
mod kernel_text;
mod log;
mod model;
mod numbers;
mod opt;
mod pull;
mod run;
mod serve;
mod table;
mod talk;
mod tokenize;

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use tegula_engine::Error;

/// Runs language models on Tegula's kernels.
#[derive(Debug, Parser)]
#[command(
    name = "tegula",
    version,
    max_term_width = 100,
    after_help = "MODEL is a known name (`tegula pull --list` shows them), the path of a GGUF file, or \
                  `hf:OWNER/NAME/FILE.gguf` for a file on the Hugging Face Hub. Models are kept in \
                  ~/.cache/tegula/models; set TEGULA_HOME to keep them elsewhere.\n\n\
                  Warnings are shown on standard error; set TEGULA_LOG (or RUST_LOG) to another level: off, error, \
                  info, debug, trace. Compiled kernels are kept in ~/.cache/tegula/kernels: TEGULA_CACHE names another \
                  folder (or is `off`), TEGULA_CACHE_MB bounds its size; those of a bundle, which `tegula bundle` \
                  makes, come from tegula.bundle beside this program or from where TEGULA_BUNDLE says (`off`: \
                  from none). TEGULA_THREADS and TEGULA_CPU are the \
                  threads and the instruction set to compute with.\n\n\
                  Start with:  tegula run smollm2   or   tegula serve smollm2"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Serve(serve::Args),
    Pull(pull::Args),
    Bench(bench::Args),
    Eval(eval::Args),
    Inspect(inspect::Args),
    Tokenize(tokenize::Args),
    Compile(compile::Args),
    Bundle(bundle::Args),
    Opt(opt::Args),
}

impl Command {
    fn run(self, out: &mut dyn Write) -> Result<(), Error> {
        match self {
            Command::Run(args) => run::run(args, out),
            Command::Serve(args) => serve::run(args, out),
            Command::Pull(args) => pull::run(args, out),
            Command::Bench(args) => bench::run(args, out),
            Command::Eval(args) => eval::run(args, out),
            Command::Inspect(args) => inspect::run(args, out),
            Command::Tokenize(args) => tokenize::run(args, out),
            Command::Compile(args) => compile::run(args, out),
            Command::Bundle(args) => bundle::run(args, out),
            Command::Opt(args) => opt::run(args, out),
        }
    }
}

/// Parses the process's arguments and runs what they ask for. An error is a message on standard error and exit code 1;
/// wrong arguments are exit code 2.
fn main() -> ExitCode {
    let cli = Cli::parse();
    let _log = log::start(match &cli.command {
        Command::Serve(args) => Some(args.log_format),
        _ => None,
    });
    let mut out = io::stdout().lock();
    let result = cli.command.run(&mut out).and_then(|()| out.flush().map_err(Error::output));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has seen enough, as in `tegula inspect … | head`.
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if even this cannot be written.
            let _ = writeln!(io::stderr(), "error: {}", table::printable(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// Tells the user something on standard error that is no error.
fn note(text: impl Display) {
    if tegula_engine::progress::is_log() {
        return tracing::warn!("{text}");
    }
    // As for errors.
    let _ = writeln!(io::stderr(), "note: {}", table::printable(&text.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
