//! `tegulac`: answers compile requests on standard input until it ends. See [`tegula_ir::protocol`].

mod guard;

use std::{
    io::{self, Write},
    process::ExitCode,
};
use tegula_codegen::{nvidia::ptxas, service};
use tegula_ir::protocol::{Request, read_frame, write_frame};

const HELP: &str = "tegulac, the tile-kernel compiler: reads compile requests from standard input and answers on \
standard output.\nIt is started by programs that launch kernels; `tegula compile` is its command line.\n\n  --version   \
what it is made of, as kernel caches see it\n  --ptxas     \
which of NVIDIA's assemblers it uses for cubins\n\nTEGULA_COMPILER_MB \
bounds its memory (megabytes, 8192 by default; 0 for no bound).";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--version") => {
            println!("tegulac {} {}", env!("CARGO_PKG_VERSION"), env!("TEGULA_SOURCES"));
            return ExitCode::SUCCESS;
        }
        Some("--ptxas") => {
            return match ptxas::version() {
                Ok(version) => {
                    println!("{version}");
                    ExitCode::SUCCESS
                }
                Err(e) => {
                    eprintln!("{e}");
                    ExitCode::FAILURE
                }
            };
        }
        Some(_) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    guard::limit_memory();
    guard::follow_parent();
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let step = match read_frame::<Request>(&mut input) {
            Ok(Some(request)) => write_frame(&mut output, &service::answer(&request)),
            Ok(None) => return ExitCode::SUCCESS,
            Err(e) => Err(e),
        };
        if let Err(e) = step {
            let _ = writeln!(io::stderr(), "tegulac: {e}");
            return ExitCode::FAILURE;
        }
    }
}
