//! The program as a whole, where there is no GPU: on the emulator, and on a stub of the driver. In a short time not all is
//! done (that all cases agree is another test's, and the kernels have theirs); what is said must be whole and true.

#[path = "../../../runtime/tests/common/stub.rs"]
mod stub;

use serde_json::Value;
use std::{
    collections::HashSet,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

/// Runs `gpu run` and gives its report.
fn gpu(folder: &Path, device: &str, budget: f64, more: &[&str], variables: &[(&str, &str)]) -> (bool, Value) {
    let out = folder.join("result.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu"));
    command.args(["run", "--device", device, "--sizes", "small", "--budget-s", &budget.to_string()]).args(more);
    command.arg("--out").arg(&out).envs(variables.iter().copied());
    let begun = Instant::now();
    let done = command.output().unwrap();
    // What it says in its time, and a little for a machine that is busy.
    assert!(begun.elapsed() < Duration::from_secs_f64(budget + 15.0), "{device}: {:?}", begun.elapsed());
    let said = String::from_utf8_lossy(&done.stderr);
    let text = std::fs::read_to_string(&out).unwrap_or_else(|e| panic!("{device}: {e}\n{said}"));
    (done.status.success(), serde_json::from_str(&text).unwrap_or_else(|e| panic!("{device}: {e}\n{text}")))
}

/// Names in `results` and `not_run` of a part; each item is in one of them.
fn items(part: &Value) -> (HashSet<&str>, HashSet<&str>) {
    let ran: HashSet<&str> = part["results"].as_object().unwrap().keys().map(String::as_str).collect();
    let not: HashSet<&str> = part["not_run"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    assert!(ran.is_disjoint(&not));
    (ran, not)
}

/// Part by part: something ran, nothing went wrong, and what did not run is said.
fn sound(device: &str, report: &Value) {
    for (name, part) in report["parts"].as_object().unwrap() {
        let (ran, not) = items(part);
        let what = format!("{device}, {name}: {:#}", part["summary"]);
        assert!(ran.len() > 2, "{what}");
        assert_eq!(part["summary"]["run"], ran.len(), "{what}");
        assert_eq!(part["summary"]["not_run"], not.len(), "{what}");
        assert_eq!(not.is_empty(), part["problems"].as_array().unwrap().is_empty(), "{what}");
        let all: HashSet<&str> = ran.union(&not).copied().collect();
        match name.as_str() {
            "instructions" => assert_eq!(all.len(), tegula_gpu::instructions::cases().len(), "{what}"),
            "kernels" => {
                for kernel in tegula_kernels::registry::KERNELS {
                    let named = all.iter().any(|item| item.split(' ').next() == Some(kernel.name));
                    assert!(named, "{device}: no case of {}", kernel.name);
                }
            }
            _ => assert!(all.len() >= 33, "{what}"),
        }
        for (item, result) in part["results"].as_object().unwrap() {
            let what = format!("{device}, {item}: {result:#}");
            // What its time was over for is no fault.
            if result.get("stopped").is_some() {
                continue;
            }
            assert!(result.get("failed").is_none() && result.get("crashed").is_none(), "{what}");
            match name.as_str() {
                "instructions" => {
                    let skipped = result.get("skipped").is_some();
                    assert_eq!(skipped, result.get("within").is_none(), "{what}");
                    assert!(skipped || result["differences"] == 0 && result["cases"].as_u64() > Some(0), "{what}");
                }
                "kernels" => assert!(result["right"] == true && result["values"].as_u64() > Some(0), "{what}"),
                _ if item == "peers" => assert!(result["absent"].is_string(), "{what}"),
                _ if item.starts_with("ceilings") => {}
                _ => {
                    assert!(result["median_us"].as_f64() > Some(0.0) && result["bytes"].as_f64() > Some(0.0), "{what}");
                    assert_eq!(result.get("floor_us").is_some(), device.starts_with("cuda"), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_short_run_on_the_emulator_is_whole_and_true() {
    for device in ["emulated:sm_80", "emulated:sm_90a"] {
        let folder = tempfile::tempdir().unwrap();
        let (well, report) = gpu(folder.path(), device, 16.0, &[], &[]);
        assert_eq!(report["device"]["name"], device);
        assert_eq!(report["all_well"], well);
        assert_eq!(report["parts"].as_object().unwrap().len(), 3);
        sound(device, &report);
        assert!(!folder.path().join("truth").exists(), "no table is taken of the emulator");
    }
}

#[test]
fn the_stub_of_a_driver_is_a_gpu_with_tables() {
    let (folder, driver) = (tempfile::tempdir().unwrap(), stub::folder());
    let library = driver.path().to_str().unwrap();
    let (_, report) = gpu(folder.path(), "cuda:0", 20.0, &[], &[("LD_LIBRARY_PATH", library)]);
    assert_eq!(report["device"]["gpu"], "Tegula stub sm_90a");
    sound("cuda:0", &report);
    // Tables read back, each of a case that is said to have run.
    let (ran, _) = items(&report["parts"]["instructions"]);
    let mut tables = 0;
    for file in std::fs::read_dir(folder.path().join("truth/stub_sm_90a")).unwrap() {
        for table in tegula_gpu::truth::read(&file.unwrap().path()).unwrap() {
            assert!(ran.contains(table.name.as_str()), "{}", table.name);
            tables += 1;
        }
    }
    assert!(tables > 2 && tables <= ran.len(), "{tables} tables, {} cases", ran.len());
}

/// A failure that takes the process's GPU with it ends the process; the next one goes on behind it.
#[test]
fn items_that_fail_cost_their_process_alone() {
    let (folder, driver) = (tempfile::tempdir().unwrap(), stub::folder());
    // 1 MiB of memory: too little for most tables of inputs, enough for some.
    let variables = [("LD_LIBRARY_PATH", driver.path().to_str().unwrap()), ("TEGULA_STUB_MB", "1")];
    let (well, report) = gpu(folder.path(), "cuda:0", 12.0, &["--part", "instructions"], &variables);
    assert!(!well && report["all_well"] == false);
    let part = &report["parts"]["instructions"];
    let (ran, not) = items(part);
    assert_eq!(ran.len() + not.len(), tegula_gpu::instructions::cases().len());
    let results = part["results"].as_object().unwrap();
    let failed = results.values().filter(|r| r["failed"].as_str().is_some_and(|f| f.contains("OUT_OF_MEMORY")));
    let right = results.values().filter(|r| r["within"] == true).count();
    let failed = failed.count();
    assert!(failed > 1 && right > 1, "{failed} failed, {right} right: {:#}", part["summary"]);
    let processes = part["processes"].as_u64().unwrap() as usize;
    assert!((failed..=failed + 1).contains(&processes), "{processes} processes for {failed} failures");
}

/// What hangs is stopped and named, and the next one has its turn.
#[test]
fn items_that_hang_are_stopped() {
    let (folder, driver) = (tempfile::tempdir().unwrap(), stub::folder());
    // Each piece of work takes ten seconds; two are allowed.
    let library = driver.path().to_str().unwrap();
    let variables = [("LD_LIBRARY_PATH", library), ("TEGULA_STUB_DELAY_US", "10000000")];
    let (well, report) = gpu(folder.path(), "cuda:0", 14.0, &["--part", "instructions", "--item-s", "2"], &variables);
    let part = &report["parts"]["instructions"];
    let stopped = part["results"].as_object().unwrap().values().filter(|r| r["stopped"] == "it hung for 2 s").count();
    assert!(!well && stopped > 1, "{:#}", part["summary"]);
    assert!(part["processes"].as_u64() >= Some(stopped as u64), "{part:#}");
}

#[test]
fn mistakes_on_the_command_line_are_told() {
    let says = |args: &[&str], want: &str| {
        let done = Command::new(env!("CARGO_BIN_EXE_gpu")).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(2) && said.contains(want), "{args:?}: {said}");
    };
    says(&["run", "--out", "x"], "run wants --device");
    says(&["run", "--device", "cuda:0"], "run wants --out");
    says(&["run", "--device", "emulated:sm_70"], "expected cuda:N, emulated:sm_80 or emulated:sm_90a");
    says(&["run", "--part", "speed"], "expected one of instructions, kernels, timings");
    says(&["run", "--budget-s", "0"], "--budget-s: expected seconds from 1 to 86400");
    says(&["run", "--out"], "--out wants a value");
    says(&["fly", "--out", "x"], "unknown command fly");
}

/// For `./x test --gpu`: everything, on the first GPU of this machine.
mod gpu {
    use super::*;

    #[test]
    #[ignore = "needs a GPU"]
    fn everything_on_this_machines_gpu() {
        let wanted = std::env::var_os("TEGULA_GPU_RESULT").map(std::path::PathBuf::from);
        let folder = tempfile::tempdir().unwrap();
        let out = wanted.unwrap_or_else(|| folder.path().join("result.json"));
        let args = ["run", "--device", "cuda:0", "--budget-s", "360", "--out"];
        let done = Command::new(env!("CARGO_BIN_EXE_gpu")).args(args).arg(&out).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("no CUDA driver") || said.contains("no device cuda:0") {
            skip::skip("instructions, kernels and times on a GPU: there is none");
            return;
        }
        let report = std::fs::read_to_string(&out).unwrap_or_else(|e| panic!("{e}: {said}"));
        assert!(done.status.success(), "{said}\n{report}");
    }
}

#[path = "../../src/skip.rs"]
mod skip;
