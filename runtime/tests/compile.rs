//! Compiler processes that die, hang or talk nonsense: the caller gets an error that says what happened, and the next
//! request works.

mod common;

use common::{fake, processes, starts};
use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tegula::{
    cache::DiskCache,
    compile::{CompileError, Compiler, Identity, Program, Progress, find},
};
use tegula_ir::protocol::{Emit, Request};

#[test]
fn fake_compiler() {
    common::serve();
}

fn request(name: &str) -> Request {
    let kernel = format!("kernel @{name}() {{\n}}\n");
    Request { kernel, target: "cpu:x86-64-v3".into(), emit: Emit::Artifact, checked: false }
}

fn compiler(dir: &Path, limit: usize) -> Compiler {
    Compiler::new(Program::at(fake(dir, "tegulac fake 1")), limit, Duration::from_secs(60))
}

fn works(c: &Compiler, name: &str) {
    let output = c.compile(name, &request(name)).unwrap();
    assert_eq!(String::from_utf8(output.bytes).unwrap(), format!("kernel @{name}() {{ for cpu:x86-64-v3"));
    assert_eq!(output.meta.scratch_bytes, 64);
}

#[test]
fn one_process_serves_many_requests() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 4);
    assert_eq!(starts(dir.path()), (0, 0), "started on demand");
    for i in 0..50 {
        works(&c, &format!("k{i}"));
    }
    assert_eq!(starts(dir.path()).0, 1);
}

#[test]
fn a_process_that_fails_gives_an_error_with_kernel_target_and_saved_ir_and_the_next_request_works() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 2);
    for (name, what) in [
        ("aborts", "it was ended by signal 6 (abort)"),
        ("exits", "it ended without an answer (exit status: 3)"),
        ("babbles", "its answer makes no sense: expected a frame starting with \"TGLC\", found bytes [48, 65, 6c, 6c]"),
        ("cuts", "it ended without an answer (exit status: 0)"),
        ("closes", "it closed its output without an answer and was stopped"),
    ] {
        works(&c, "good");
        let error = c.compile(name, &request(name)).unwrap_err();
        let text = error.to_string();
        let CompileError::Crashed { kernel, target, what: happened, said, saved } = error else {
            panic!("{name}: {text}")
        };
        assert_eq!((kernel.as_str(), &*target, happened.as_str()), (name, "cpu:x86-64-v3", what));
        let saved = saved.unwrap();
        let ir = std::fs::read_to_string(&saved).unwrap();
        assert!(ir.starts_with("// target cpu:x86-64-v3\n") && ir.ends_with(&request(name).kernel), "{ir}");
        for part in [name, "cpu:x86-64-v3", what, saved.to_str().unwrap()] {
            assert!(text.contains(part), "{text}");
        }
        std::fs::remove_file(saved).unwrap();
        assert_eq!(said.contains("LLVM ERROR: cannot select"), name == "aborts", "{said}");
        works(&c, "good");
    }
}

#[test]
fn a_process_that_hangs_is_stopped_when_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let c = Compiler::new(Program::at(fake(dir.path(), "tegulac fake 1")), 1, Duration::from_millis(700));
    let begun = Instant::now();
    let error = c.compile("hangs", &request("hangs")).unwrap_err().to_string();
    assert!(error.contains("no answer within 700ms"), "{error}");
    // A request longer than a pipe holds, to one that does not read, is given up as well.
    let mut long = request("hangs");
    long.kernel.extend(std::iter::repeat_n('x', 1 << 20));
    assert!(c.compile("hangs", &long).is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));
    let c = compiler(dir.path(), 1);
    works(&c, "good");
}

#[test]
fn a_process_killed_while_idle_is_replaced_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 1);
    works(&c, "one");
    let [pid] = processes(dir.path())[..] else { panic!("one process") };
    // SAFETY: this test started it, and it still lives: it waits for requests.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    std::thread::sleep(Duration::from_millis(100));
    works(&c, "two");
    assert_eq!(starts(dir.path()).0, 2);
}

#[test]
fn a_process_without_requests_is_ended_and_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 2).idle(Duration::from_millis(300));
    // SAFETY: signal 0 only asks whether there is such a process.
    let lives = |pid: &i32| unsafe { libc::kill(*pid, 0) } == 0;
    for round in 1..=2 {
        std::thread::scope(|s| {
            for t in 0..2 {
                let c = &c;
                s.spawn(move || works(c, &format!("k{round}_{t}")));
            }
        });
        let begun = Instant::now();
        while processes(dir.path()).iter().any(lives) {
            assert!(begun.elapsed() < Duration::from_secs(20), "round {round}: a process stays");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let started = starts(dir.path()).0;
    assert!((2..=4).contains(&started), "{started}");
}

#[test]
fn a_process_that_is_asked_again_and_again_stays() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 1).idle(Duration::from_secs(3));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        works(&c, "again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(starts(dir.path()).0, 1);
}

#[test]
fn a_rejected_kernel_costs_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let c = compiler(dir.path(), 1);
    let error = c.compile("wrong", &request("wrong")).unwrap_err().to_string();
    assert_eq!(error, "kernel `wrong` does not compile for cpu:x86-64-v3: no such op (lower)");
    works(&c, "good");
    assert_eq!(starts(dir.path()).0, 1);
}

#[test]
fn many_threads_share_few_processes_and_hear_of_progress() {
    let dir = tempfile::tempdir().unwrap();
    let news = Arc::new(Mutex::new((0, 0, 0)));
    let heard = news.clone();
    let c = compiler(dir.path(), 2).on_progress(Arc::new(move |p| {
        let mut n = heard.lock().unwrap();
        match p {
            Progress::Started { .. } => n.0 += 1,
            Progress::Finished { ok: true, .. } => n.1 += 1,
            Progress::Finished { .. } => n.2 += 1,
        }
    }));
    std::thread::scope(|s| {
        for t in 0..6 {
            let c = &c;
            s.spawn(move || (0..5).for_each(|i| works(c, &format!("k{t}_{i}"))));
        }
    });
    assert!(c.compile("exits", &request("exits")).is_err());
    assert!((1..=2).contains(&starts(dir.path()).0), "{:?}", starts(dir.path()));
    assert_eq!(*news.lock().unwrap(), (31, 30, 1));
}

#[test]
fn a_missing_or_unusable_program_says_how_to_get_it() {
    let dir = tempfile::tempdir().unwrap();
    let none = Compiler::new(Program::at(dir.path().join("nowhere")), 1, Duration::from_secs(5));
    let error = none.compile("k", &request("k")).unwrap_err().to_string();
    for part in ["`tegulac` was not found", "nowhere", "cargo install tegula-codegen", "TEGULAC="] {
        assert!(error.contains(part), "{error}");
    }
    std::fs::write(dir.path().join("plain"), "no program").unwrap();
    let plain = Compiler::new(Program::at(dir.path().join("plain")), 1, Duration::from_secs(5));
    for _ in 0..2 {
        let error = plain.compile("k", &request("k")).unwrap_err();
        assert!(matches!(error, CompileError::Unusable { .. }), "{error}");
    }
}

/// Where [`find::find`] looks, seen from a copy of this program in a folder of its own.
#[test]
fn the_compiler_is_found_by_variable_beside_the_program_and_on_the_path() {
    if std::env::var_os("TELL_FOUND").is_some() {
        match find::find() {
            Ok(path) => println!("found {}", path.display()),
            Err(e) => println!("{e}"),
        }
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for folder in ["deps", "path"] {
        std::fs::create_dir(root.join(folder)).unwrap();
    }
    std::fs::copy(std::env::current_exe().unwrap(), root.join("deps/program")).unwrap();
    let look = |tegulac: Option<&Path>| {
        let mut command = std::process::Command::new(root.join("deps/program"));
        let test = "the_compiler_is_found_by_variable_beside_the_program_and_on_the_path";
        command.args(["--exact", test, "--nocapture"]).env("TELL_FOUND", "1").env("PATH", root.join("path"));
        match tegulac {
            Some(path) => command.env("TEGULAC", path),
            None => command.env_remove("TEGULAC"),
        };
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let found = |path: &Path| format!("found {}", path.display());
    assert!(look(None).contains("`tegulac` was not found"));
    // Each place goes before those of the lines above.
    for place in ["path/tegulac", "tegulac", "deps/tegulac"].map(|p| root.join(p)) {
        fake(place.parent().unwrap(), "1");
        assert!(look(None).contains(&found(&place)), "{}", look(None));
    }
    let own = root.join("path/tegulac");
    assert!(look(Some(&own)).contains(&found(&own)));
    assert!(look(Some(&root.join("nowhere"))).contains("was not found"), "a variable that is wrong is an error");
    assert!(look(Some(&root)).contains("it is a folder"));
}

#[test]
fn another_program_is_refused_before_it_gets_a_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let program = Program::at(fake(dir.path(), "true (GNU coreutils) 9.1"));
    let e = program.identity(&DiskCache::none()).unwrap_err().to_string();
    assert!(e.contains("it is no `tegulac`"), "{e}");
}

#[test]
fn the_compiler_is_asked_once_who_it_is_until_it_changes() {
    let (dir, cache_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = DiskCache::at(cache_dir.path(), 1 << 20);
    let identity = || Program::at(dir.path().join("tegulac")).identity(&cache).cloned();
    assert!(identity().is_err(), "no compiler, and none was ever used with this cache");
    fake(dir.path(), "tegulac 1 hash-a");
    for _ in 0..3 {
        assert_eq!(identity().unwrap(), Identity("tegulac 1 hash-a".into()));
    }
    assert_eq!(starts(dir.path()), (0, 1));
    // An edited compiler of the same length: another time of change, another identity.
    std::thread::sleep(Duration::from_millis(20));
    fake(dir.path(), "tegulac 1 hash-b");
    assert_eq!(identity().unwrap(), Identity("tegulac 1 hash-b".into()));
    assert_eq!(starts(dir.path()), (0, 2));
    // Gone: what the last one made can still be used.
    std::fs::remove_file(dir.path().join("tegulac")).unwrap();
    assert_eq!(identity().unwrap(), Identity("tegulac 1 hash-b".into()));
    assert!(Program::at(dir.path().join("tegulac")).identity(&DiskCache::none()).is_err());
}
