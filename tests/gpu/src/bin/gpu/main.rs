//! `gpu`: what runs on a machine with a GPU. See README.md.

// The examples' kernels are in the matrix and, of its own types there, among the timings.
#![allow(clippy::duplicate_mod)]

mod child;
mod device;
mod instructions;
mod kernels;
mod options;
mod parent;
mod peers;
mod record;
mod timings;

// The matrix of kernels and references, which the kernels' own tests have; they name these modules from the root.
#[path = "../../../../../kernels/tests/library/attention.rs"]
#[allow(dead_code, unused_imports)]
mod attention;
#[path = "../../../../../kernels/tests/library/logprobs.rs"]
#[allow(dead_code, unused_imports)]
mod logprobs;
mod matrix;
#[path = "../../../../../kernels/tests/library/rules.rs"]
#[allow(dead_code, unused_imports)]
mod rules;
#[path = "../../../../../kernels/tests/library/sample.rs"]
#[allow(dead_code, unused_imports)]
mod sample;
#[path = "../../../../../kernels/tests/library/support.rs"]
#[allow(dead_code)]
mod support;

use options::{Command, USAGE};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let command = match options::parse(&args) {
        Ok(command) => command,
        Err(e) => {
            eprintln!("gpu: {e}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Run(run) => parent::run(&run),
        Command::Child(child) => return child::run(&child),
        Command::Bundle { out } => record::bundle(&out).map(|()| true),
        Command::Help => {
            println!("{USAGE}");
            Ok(true)
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("gpu: {e}");
            ExitCode::FAILURE
        }
    }
}
