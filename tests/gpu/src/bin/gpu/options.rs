//! The command line.

use crate::device::Chosen;
use std::{path::PathBuf, time::Duration};

/// What `gpu` says about itself.
pub const USAGE: &str = "\
gpu run --device D --out FILE [--part P]... [--budget-s N] [--sizes real|small] [--item-s N]
    Runs the parts (instructions, kernels, timings; all without --part) on D (cuda:0, emulated:sm_80, emulated:sm_90a),
    in N seconds at most (360), and writes what came out as JSON. Tables of a GPU's results go to truth/ beside FILE.
    --sizes: how large timings are; real on a GPU, small on the emulator.
    --item-s: seconds that one instruction, kernel or timing may take before it is stopped as hung (60).
gpu bundle --out FILE
    Compiles all kernels that `run` needs into a bundle; needs tegulac.";

/// A part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What instructions do.
    Instructions,
    /// Whether kernels are right.
    Kernels,
    /// How long they take.
    Timings,
}

impl Part {
    /// All, in order.
    pub const ALL: [Part; 3] = [Part::Instructions, Part::Kernels, Part::Timings];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Part::Instructions => "instructions",
            Part::Kernels => "kernels",
            Part::Timings => "timings",
        }
    }

    /// Its share of the budget, in parts of all parts that are asked for. What one leaves over, the next ones have.
    pub fn share(self) -> f64 {
        match self {
            Part::Instructions => 0.35,
            Part::Kernels => 0.25,
            Part::Timings => 0.4,
        }
    }
}

/// How large timings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// As models have them.
    Real,
    /// For the emulator.
    Small,
}

impl Sizes {
    /// Its name.
    pub fn name(self) -> &'static str {
        if self == Sizes::Real { "real" } else { "small" }
    }
}

/// `gpu run`.
#[derive(Debug)]
pub struct Run {
    pub device: Chosen,
    pub out: PathBuf,
    pub parts: Vec<Part>,
    pub budget: Duration,
    /// What hangs for so long is stopped.
    pub item: Duration,
    pub sizes: Sizes,
}

/// `gpu child`: one part, by a process that may die.
#[derive(Debug)]
pub struct Child {
    pub device: Chosen,
    pub part: Part,
    /// What is done is appended here; what is in it already is not done again.
    pub log: PathBuf,
    /// Where tables go.
    pub truth: PathBuf,
    pub budget: Duration,
    pub sizes: Sizes,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    Run(Run),
    Child(Child),
    Bundle { out: PathBuf },
    Help,
}

/// Reads the arguments.
pub fn parse(args: &[String]) -> Result<Command, String> {
    let Some((command, rest)) = args.split_first() else { return Ok(Command::Help) };
    let (mut device, mut out, mut parts, mut sizes) = (None, None, vec![], None);
    let (mut seconds, mut item) = (360.0, 60.0);
    let (mut log, mut truth) = (None, None);
    let mut rest = rest.iter();
    while let Some(key) = rest.next() {
        let Some(value) = rest.next() else { return Err(format!("{key} wants a value")) };
        match key.as_str() {
            "--device" => device = Some(Chosen::parse(value)?),
            "--out" => out = Some(PathBuf::from(value)),
            "--log" => log = Some(PathBuf::from(value)),
            "--truth" => truth = Some(PathBuf::from(value)),
            "--part" => {
                let names: Vec<_> = Part::ALL.iter().map(|p| p.name()).collect();
                let part = Part::ALL.into_iter().find(|p| p.name() == value);
                parts.push(part.ok_or_else(|| format!("--part: expected one of {}, found {value}", names.join(", ")))?);
            }
            "--budget-s" | "--item-s" => {
                let n: Option<f64> = value.parse().ok().filter(|n| (1.0..=86400.0).contains(n));
                let n = n.ok_or_else(|| format!("{key}: expected seconds from 1 to 86400, found {value}"))?;
                *(if key == "--item-s" { &mut item } else { &mut seconds }) = n;
            }
            "--sizes" => {
                let of = [Sizes::Real, Sizes::Small].into_iter().find(|s| s.name() == value);
                sizes = Some(of.ok_or_else(|| format!("--sizes: expected real or small, found {value}"))?);
            }
            _ => return Err(format!("unknown option {key}")),
        }
    }
    let (budget, item) = (Duration::from_secs_f64(seconds), Duration::from_secs_f64(item));
    let missing = |what: &str| format!("{command} wants {what}");
    match command.as_str() {
        "run" => {
            let device = device.ok_or_else(|| missing("--device"))?;
            if parts.is_empty() {
                parts = Part::ALL.to_vec();
            }
            let sizes = sizes.unwrap_or(device.usual_sizes());
            Ok(Command::Run(Run { device, out: out.ok_or_else(|| missing("--out"))?, parts, budget, item, sizes }))
        }
        "child" => {
            let device = device.ok_or_else(|| missing("--device"))?;
            let sizes = sizes.unwrap_or(device.usual_sizes());
            let &[part] = &parts[..] else { return Err(missing("one --part")) };
            let (log, truth) = (log.ok_or_else(|| missing("--log"))?, truth.ok_or_else(|| missing("--truth"))?);
            Ok(Command::Child(Child { device, part, log, truth, budget, sizes }))
        }
        "bundle" => Ok(Command::Bundle { out: out.ok_or_else(|| missing("--out"))? }),
        "help" | "-h" | "--help" => Ok(Command::Help),
        _ => Err(format!("unknown command {command}")),
    }
}
