//! `tegula opt`: passes over tile IR.

use std::ffi::OsString;
use std::io::Write;

use super::kernel_text;
use tegula::ir::passes::{self, PASSES};
use tegula_engine::Error;

/// Run passes over a kernel's tile IR and print the result
#[derive(Debug, clap::Args)]
#[command(after_help = passes_help())]
pub(super) struct Args {
    /// A file of tile IR; `-` reads standard input
    #[arg(value_name = "FILE", default_value = "-")]
    file: OsString,
    /// Passes to run in this order, separated by commas; `optimise` is all of them until nothing changes
    #[arg(long, value_name = "A,B,…", default_value = "optimise")]
    passes: String,
}

fn passes_help() -> String {
    let passes: String = PASSES.iter().map(|p| format!("  {:<14}{}\n", p.name, p.doc)).collect();
    format!(
        "Passes:\n{passes}\nExamples:\n  tegula compile softmax --emit built | tegula opt\n  \
         tegula compile matmul --emit built | tegula opt - --passes canonicalise,cse"
    )
}

pub(super) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    if args.passes.split(',').any(|name| name.trim().is_empty()) {
        let why =
            format!("--passes `{}`: expected names of passes with one comma between; `--help` lists them", args.passes);
        return Err(Error::Usage(why));
    }
    let mut kernel = kernel_text::read(&args.file)?;
    passes::run_named(&mut kernel, &args.passes).map_err(|e| Error::Usage(e.to_string()))?;
    write!(out, "{}", kernel.renumbered().text()).map_err(Error::output)
}
