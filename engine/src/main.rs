//! The `tegula` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    tegula_engine::cli::main()
}
