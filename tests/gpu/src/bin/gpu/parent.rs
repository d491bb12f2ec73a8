//! The whole run: a process for each part, restarted when it dies or hangs, stopped when its time is over; one report.

use crate::{
    child::{CANNOT, GO_ON, lines},
    options::{Part, Run},
    timings::PEERS,
};
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread::sleep,
    time::{Duration, Instant},
};

/// Seconds kept back to write the report.
const RESERVE: f64 = 2.0;
/// Time that a child has to stop by itself.
const GRACE: f64 = 5.0;

/// Runs the parts and writes the report; whether everything went well.
pub fn run(run: &Run) -> Result<bool, String> {
    let begun = Instant::now();
    let folder = run.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_path_buf();
    let logs = folder.join(format!("gpu-logs-{}", std::process::id()));
    fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    let mut report = Map::new();
    report.insert("tool".into(), json!("tegula gpu"));
    report.insert("version".into(), json!(env!("CARGO_PKG_VERSION")));
    report.insert("device".into(), run.device.describe()?);
    report.insert("sizes".into(), json!(run.sizes.name()));
    report.insert("budget_s".into(), json!(run.budget.as_secs_f64()));
    let mut good = true;
    let mut parts = Map::new();
    for (i, part) in run.parts.iter().enumerate() {
        let left = run.budget.as_secs_f64() - begun.elapsed().as_secs_f64() - RESERVE;
        let shares: f64 = run.parts[i..].iter().map(|p| p.share()).sum();
        let budget = (left * part.share() / shares).max(0.0);
        let (value, well) = run_part(run, *part, &logs, &folder.join("truth"), budget);
        good &= well;
        eprintln!("{}: {}", part.name(), value["summary"]);
        parts.insert(part.name().into(), value);
        // Whatever happens next, what is known is on disk.
        let mut so_far = report.clone();
        so_far.insert("seconds".into(), json!(begun.elapsed().as_secs_f64()));
        so_far.insert("all_well".into(), json!(good && i + 1 == run.parts.len()));
        so_far.insert("parts".into(), Value::Object(parts.clone()));
        write(&run.out, &Value::Object(so_far))?;
    }
    let _ = fs::remove_dir_all(&logs);
    Ok(good)
}

/// All of it or nothing.
fn write(to: &Path, report: &Value) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", to.display());
    let part = PathBuf::from(format!("{}.part", to.display()));
    fs::write(&part, format!("{report:#}\n")).map_err(failed)?;
    fs::rename(&part, to).map_err(failed)
}

/// A child that is ended with this handle.
struct Running(Child);
impl Drop for Running {
    fn drop(&mut self) {
        // Either it is over already, or it must be.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How a child ended.
enum Ended {
    /// By itself.
    Itself(ExitStatus),
    /// An item took longer than one may.
    Hung,
    /// Its part's time was over.
    Late,
}

/// Waits for a child, and ends it when its time is over or nothing happens any more.
fn wait(child: Child, log: &Path, item: Duration, seconds: f64) -> Result<Ended, String> {
    let (mut child, begun) = (Running(child), Instant::now());
    // How long the log is, and since when.
    let mut seen = (0, Instant::now());
    loop {
        if let Some(status) = child.0.try_wait().map_err(|e| e.to_string())? {
            return Ok(Ended::Itself(status));
        }
        if begun.elapsed().as_secs_f64() > seconds {
            return Ok(Ended::Late);
        }
        let length = fs::metadata(log).map_or(0, |m| m.len());
        if length != seen.0 {
            seen = (length, Instant::now());
        } else if seen.1.elapsed() > item && open_item(log).is_some_and(|name| name != PEERS) {
            return Ok(Ended::Hung);
        }
        sleep(Duration::from_millis(10));
    }
}

/// The item that was begun and did not end.
fn open_item(log: &Path) -> Option<String> {
    begun_items(log).pop().filter(|(_, ended)| !ended).map(|(name, _)| name)
}

/// One part, by as many processes as it takes.
fn run_part(run: &Run, part: Part, logs: &Path, truth: &Path, budget: f64) -> (Value, bool) {
    let begun = Instant::now();
    let (log, errors) = (logs.join(format!("{}.jsonl", part.name())), logs.join(format!("{}.stderr", part.name())));
    let mut problems: Vec<String> = vec![];
    // What items that did not end did to their process.
    let mut fates: Map<String, Value> = Map::new();
    let mut processes = 0;
    loop {
        let left = budget - begun.elapsed().as_secs_f64();
        if left < 0.5 {
            problems.push("its time was over".into());
            break;
        }
        let known = begun_items(&log).len();
        processes += 1;
        let ended = start(run, part, &log, &errors, truth, left).and_then(|c| wait(c, &log, run.item, left + GRACE));
        let open = open_item(&log).filter(|name| !fates.contains_key(name));
        let tail = tail(&errors);
        match ended {
            Err(e) => {
                problems.push(e);
                break;
            }
            Ok(Ended::Itself(status)) if status.success() => {
                let open = plan(&log).len() > begun_items(&log).len();
                problems.extend(open.then(|| "its time was over".to_string()));
                break;
            }
            Ok(Ended::Itself(status)) if status.code() == Some(CANNOT.into()) => {
                problems.push(format!("it could not begin: {tail}"));
                break;
            }
            Ok(Ended::Itself(status)) if status.code() == Some(GO_ON.into()) => {}
            Ok(Ended::Itself(status)) => {
                if let Some(name) = open {
                    fates.insert(name, json!({ "crashed": format!("{status}: {tail}") }));
                }
            }
            Ok(Ended::Hung) => {
                if let Some(name) = open {
                    fates.insert(name, json!({ "stopped": format!("it hung for {:.0} s", run.item.as_secs_f64()) }));
                }
            }
            Ok(Ended::Late) => {
                if let Some(name) = open {
                    fates.insert(name, json!({ "stopped": "its part's time was over" }));
                }
                problems.push("its time was over".into());
                break;
            }
        }
        if begun_items(&log).len() == known {
            problems.push(format!("a process died before it did anything: {tail}"));
            break;
        }
    }
    collect(part, &log, fates, problems, processes, begun.elapsed())
}

/// Starts a child.
fn start(run: &Run, part: Part, log: &Path, errors: &Path, truth: &Path, seconds: f64) -> Result<Child, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let errors = fs::File::options().create(true).append(true).open(errors).map_err(|e| e.to_string())?;
    let mut command = Command::new(exe);
    command.args(["child", "--device", &run.device.name(), "--part", part.name(), "--sizes", run.sizes.name()]);
    command.arg("--budget-s").arg(format!("{:.3}", seconds.max(1.0)));
    command.arg("--log").arg(log).arg("--truth").arg(truth);
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(errors);
    command.spawn().map_err(|e| e.to_string())
}

fn plan(log: &Path) -> Vec<String> {
    let lines = lines(log);
    let plan = lines.iter().find_map(|l| l["plan"].as_array());
    plan.into_iter().flatten().filter_map(|n| n.as_str().map(str::to_owned)).collect()
}

/// Items that were begun, and whether they ended.
fn begun_items(log: &Path) -> Vec<(String, bool)> {
    let mut out: Vec<(String, bool)> = vec![];
    for line in lines(log) {
        if let Some(name) = line["begin"].as_str() {
            out.push((name.into(), false));
        } else if let (Some(name), Some(last)) = (line["end"].as_str(), out.last_mut()) {
            last.1 |= last.0 == name;
        }
    }
    out
}

/// The last lines that a child said.
fn tail(errors: &Path) -> String {
    let text = fs::read_to_string(errors).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// Gives each timing what the others took for the same.
fn beside_peers(results: &mut Map<String, Value>) {
    let times = results.get("peers").map(|p| p["times"].clone()).unwrap_or_default();
    for result in results.values_mut() {
        if let Some(others) = result["peer"].as_str().and_then(|name| times.get(name)) {
            result["peers"] = others.clone();
        }
    }
}

/// What a part's log says.
fn collect(
    part: Part,
    log: &Path,
    mut fates: Map<String, Value>,
    problems: Vec<String>,
    processes: u32,
    took: Duration,
) -> (Value, bool) {
    let mut results = Map::new();
    for line in lines(log) {
        if let Some(name) = line["end"].as_str() {
            let mut result = line["result"].clone();
            if let Some(object) = result.as_object_mut() {
                object.insert("seconds".into(), line["seconds"].clone());
            }
            results.insert(name.into(), result);
        }
    }
    results.append(&mut fates);
    let not_run: Vec<String> = plan(log).into_iter().filter(|n| !results.contains_key(n)).collect();
    let count = |f: &dyn Fn(&Value) -> bool| results.values().filter(|v| f(v)).count();
    let has = |key: &'static str| move |v: &Value| v.get(key).is_some();
    let is = |key: &'static str, want: bool| move |v: &Value| v.get(key) == Some(&Value::Bool(want));
    let failed = count(&has("failed")) + count(&has("crashed")) + count(&has("stopped"));
    let mut summary = json!({
        "run": results.len(),
        "failed": failed,
        "not_for_this_device": count(&has("skipped")),
        "not_run": not_run.len(),
    });
    let mut well = failed == 0 && problems.is_empty() && not_run.is_empty() && !results.is_empty();
    match part {
        Part::Instructions => {
            let sum = |key: &str| results.values().filter_map(|v| v[key].as_u64()).sum::<u64>();
            summary["as_the_emulator"] = json!(count(&is("within", true)));
            summary["other_than_the_emulator"] = json!(count(&is("within", false)));
            summary["cases"] = json!(sum("cases"));
            summary["differences"] = json!(sum("differences"));
            well &= count(&is("within", false)) == 0;
        }
        Part::Kernels => {
            summary["right"] = json!(count(&is("right", true)));
            summary["wrong"] = json!(count(&is("right", false)));
            well &= count(&is("right", false)) == 0;
        }
        Part::Timings => beside_peers(&mut results),
    }
    let mut value = json!({
        "seconds": took.as_secs_f64(),
        "processes": processes,
        "problems": problems,
        "summary": summary,
        "not_run": not_run,
    });
    if part == Part::Instructions {
        value["not_covered"] = json!(tegula_gpu::instructions::NOT_COVERED);
    }
    value["results"] = Value::Object(results);
    (value, well)
}
