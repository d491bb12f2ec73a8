//! A part, in a process of its own: a kernel that fails takes the process's use of the GPU with it, and a crash ends a
//! process. Every item is announced before it is run and told of when it is done, a line of JSON each; a new process goes
//! on behind the last one that was announced.

use crate::{
    instructions::Instructions,
    kernels::Kernels,
    options::{self, Child},
    timings::Timings,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    fs, io,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Items to do one after the other.
pub trait Items {
    /// Their names.
    fn names(&self) -> Vec<String>;
    /// Does one; `left`: the time that the part still has.
    fn run(&mut self, item: usize, left: Duration) -> Done;
}

/// What came out.
pub struct Done {
    /// For the report.
    pub result: Value,
    /// This process can do no more on its device.
    pub fatal: bool,
}

impl Done {
    /// After which others can run.
    pub fn plain(result: Value) -> Done {
        Done { result, fatal: false }
    }
}

/// The exit code of a process that ends after an item was fatal: another one goes on.
pub const GO_ON: u8 = 3;
/// That of one that cannot begin.
pub const CANNOT: u8 = 4;

/// Lines of a part's log.
pub fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

fn append(file: &mut fs::File, line: &Value) -> io::Result<()> {
    file.write_all(format!("{line}\n").as_bytes())
}

/// What a panic said.
pub fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_else(|| "a panic".into())
}

/// Runs what is left of a part.
pub fn run(child: &Child) -> ExitCode {
    match attempt(child) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(CANNOT)
        }
    }
}

fn attempt(child: &Child) -> Result<ExitCode, String> {
    let begun = Instant::now();
    let before = lines(&child.log);
    let done: HashSet<&str> = before.iter().filter_map(|l| l["begin"].as_str()).collect();
    let mut log = fs::File::options().create(true).append(true).open(&child.log).map_err(|e| e.to_string())?;
    let mut items: Box<dyn Items> = match child.part {
        options::Part::Instructions => Box::new(Instructions::new(child.device, &child.truth)?),
        options::Part::Kernels => Box::new(Kernels::new(child.device)?),
        options::Part::Timings => Box::new(Timings::new(child.device, child.sizes)?),
    };
    let names = items.names();
    let write = |log: &mut fs::File, line: Value| append(log, &line).map_err(|e| e.to_string());
    if before.is_empty() {
        write(&mut log, json!({ "plan": names }))?;
    }
    for (i, name) in names.iter().enumerate() {
        let left = child.budget.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        if done.contains(name.as_str()) {
            continue;
        }
        write(&mut log, json!({ "begin": name }))?;
        let from = Instant::now();
        let done = catch_unwind(AssertUnwindSafe(|| items.run(i, left)));
        let done =
            done.unwrap_or_else(|p| Done { result: json!({ "failed": said(&*p) }), fatal: child.device.is_cuda() });
        let seconds = (from.elapsed().as_secs_f64() * 1e4).round() / 1e4;
        write(&mut log, json!({ "end": name, "seconds": seconds, "result": done.result }))?;
        if done.fatal {
            return Ok(ExitCode::from(GO_ON));
        }
    }
    Ok(ExitCode::SUCCESS)
}
