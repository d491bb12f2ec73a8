//! The cases themselves, on the emulator: all run on all their devices; results do not depend on how it is run; a
//! device's committed tables, if there are any, say the same.

#[path = "../../src/skip.rs"]
mod skip;

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};
use tegula_gpu::{
    instructions::{Case, cases, compare::compare},
    raw::{EmulatedRaw, Level, Raw},
    truth,
};
use tegula_ptx::{Completion, Options};

/// Strict and portable, early completion: as plain as it gets.
fn careful() -> EmulatedRaw {
    EmulatedRaw::new("sm_90a", Options { portable: true, ..Options::default() })
}

/// The best loops, late completion.
fn quick(arch: &'static str) -> EmulatedRaw {
    EmulatedRaw::new(arch, Options { completion: Completion::Late, ..Options::fast() })
}

#[test]
fn every_case_runs_and_all_modes_agree() {
    let cases = cases();
    let names: HashSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "names are unique");
    assert!(cases.len() > 500, "{} cases", cases.len());
    let mut wrong = vec![];
    for case in &cases {
        let want = match careful().run(&case.job) {
            Ok(results) => results,
            Err(e) => {
                wrong.push(format!("{}: {}", case.name, e.message));
                continue;
            }
        };
        assert_eq!(want.len(), case.job.result_bytes(), "{}", case.name);
        if want.iter().all(|b| *b == want[0]) {
            wrong.push(format!("{}: all results are {:#04x}: it shows nothing", case.name, want[0]));
        }
        let archs = ["sm_90a", "sm_80"];
        for arch in archs.into_iter().filter(|a| *a == "sm_90a" || case.level == Level::Sm80) {
            match quick(arch).run(&case.job) {
                Ok(got) => {
                    let d = compare(case, &got, &want);
                    if d.different > 0 {
                        wrong.push(format!("{} on {arch}: {d:?}", case.name));
                    }
                }
                Err(e) => wrong.push(format!("{} on {arch}: {}", case.name, e.message)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What devices have given so far. Without any file (no GPU was to be had yet) this checks nothing, and says so.
#[test]
fn the_emulator_is_as_the_tables_of_real_devices_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("truth");
    let cases = cases();
    let mut files = vec![];
    for arch in std::fs::read_dir(&root).into_iter().flatten().flatten() {
        files.extend(std::fs::read_dir(arch.path()).into_iter().flatten().flatten().map(|f| f.path()));
    }
    files.retain(|f| f.extension().is_some_and(|e| e == "bin"));
    if files.is_empty() {
        skip::skip("the emulator is not compared with a GPU: there is no table in tests/gpu/truth");
    }
    let mut wrong = vec![];
    for file in &files {
        let tables = truth::read(file).unwrap();
        assert!(!tables.is_empty(), "{} has no table", file.display());
        for table in tables {
            let what = format!("{}: {}", file.display(), table.name);
            let Some(case) = cases.iter().find(|c| c.name == table.name) else {
                wrong.push(format!("{what}: there is no such case any more"));
                continue;
            };
            if truth::identity(&case.job) != table.identity {
                wrong.push(format!("{what}: the case has changed since; it must be run on a device again"));
                continue;
            }
            match careful().run(&case.job) {
                Ok(results) => {
                    let d = compare(case, &table.results, &results);
                    if !d.within(case.tolerance) {
                        wrong.push(format!("{what}: {d:x?}"));
                    }
                }
                Err(e) => wrong.push(format!("{what}: {}", e.message)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} tables:\n{}", wrong.len(), wrong.join("\n"));
}

/// NVIDIA's assembler: where the compiler looks for it too.
fn ptxas() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let cache = var("XDG_CACHE_HOME").or_else(|| var("HOME").map(|home| home.join(".cache")));
    let ours = cache.map(|cache| cache.join("tegula/nvidia/bin/ptxas"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("ptxas"));
    var("TEGULA_PTXAS").into_iter().chain(ours).chain(on_path).find(|f| f.is_file())
}

/// What it says about a module; nothing if it takes it.
fn assemble(ptxas: &Path, level: Level, name: &str, text: &str) -> String {
    let file = std::env::temp_dir().join(format!("tegula-{}-{name}.ptx", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let arch = format!("-arch={}", level.target());
    let out = std::process::Command::new(ptxas).args([&arch, "-o", "/dev/null"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    if out.status.success() { String::new() } else { String::from_utf8_lossy(&out.stderr).into_owned() }
}

/// All cases are PTX to NVIDIA's assembler, not only to ours: kernels of a family and level in one module.
#[test]
fn ptxas_takes_every_case() {
    let Some(ptxas) = ptxas() else {
        assert!(
            std::env::var_os("TEGULA_PTXAS_REQUIRED").is_none(),
            "TEGULA_PTXAS_REQUIRED is set, and there is no ptxas"
        );
        skip::skip("PTX of the instructions' cases is not assembled: no ptxas (./x setup --nvidia)");
        return;
    };
    let mut modules: BTreeMap<(&str, Level), Vec<Case>> = BTreeMap::new();
    for case in cases() {
        modules.entry((case.family, case.level)).or_default().push(case);
    }
    let said: Vec<String> = modules
        .iter()
        .map(|((family, level), cases)| {
            let mut text = level.head();
            for (i, case) in cases.iter().enumerate() {
                let kernel = case.job.ptx.strip_prefix(&level.head()).unwrap();
                text += &kernel.replacen(".entry k(", &format!(".entry k{i}("), 1);
            }
            if assemble(&ptxas, *level, family, &text).is_empty() {
                return String::new();
            }
            // Which ones.
            let each = cases.iter().map(|c| (c, assemble(&ptxas, *level, family, &c.job.ptx)));
            each.filter(|(_, said)| !said.is_empty()).map(|(c, said)| format!("{}: {said}", c.name)).collect()
        })
        .collect();
    assert!(said.iter().all(String::is_empty), "{}", said.concat());
}
