//! The program: requests in, responses out, one after the other, until the input ends.

use std::{
    io::Write,
    process::{Command, Stdio},
};
use tegula_ir::protocol::{Emit, Request, Response, read_frame, write_frame};

fn request(kernel: &str, emit: Emit) -> Request {
    Request { kernel: kernel.into(), target: "cpu:x86-64-v3".into(), emit, checked: false }
}

#[test]
fn requests_are_answered_in_order() {
    let mut child =
        Command::new(env!("CARGO_BIN_EXE_tegulac")).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let good = "kernel @k(%0 \"x\": view_mut<f32, 1, unit>) {\n%1 = const {value = 0: i64} : i64\n%2 = load %0, %1 : tile<f32, 8>\nstore %0, %1, %2\n}";
    for (kernel, emit) in [(good, Emit::Artifact), ("nonsense", Emit::Artifact), (good, Emit::Asm)] {
        write_frame(&mut input, &request(kernel, emit)).unwrap();
        let response: Response = read_frame(&mut output).unwrap().expect("an answer");
        match (kernel, emit, response) {
            ("nonsense", _, Response::Err { stage, .. }) => assert_eq!(stage, "parse"),
            (_, Emit::Artifact, Response::Ok { bytes, .. }) => assert!(bytes.starts_with(b"\x7fELF")),
            (_, _, Response::Ok { bytes, .. }) => assert!(String::from_utf8(bytes).unwrap().contains("tegula_kernel")),
            (_, _, other) => panic!("{kernel}: {other:?}"),
        }
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn garbage_ends_it_with_a_message() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegulac"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(!done.status.success() && done.stdout.is_empty());
    assert!(String::from_utf8_lossy(&done.stderr).contains("TGLC"));
}

#[test]
fn the_version_names_the_sources() {
    let out = Command::new(env!("CARGO_BIN_EXE_tegulac")).arg("--version").output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(
        matches!(words[..], ["tegulac", _, hash] if hash.len() == 16 && u64::from_str_radix(hash, 16).is_ok()),
        "{text}"
    );
}

/// A sum of `n` elements, unrolled.
fn unrolled(n: usize) -> String {
    let mut text = "kernel @k(%0 \"x\": view<i32, 1, unit>, %1 \"y\": view_mut<i32, 1, unit>) {\n%2 = const {value = 0: i32} : i32\n".to_string();
    let mut sum = 2;
    for i in 0..n {
        let v = 4 * i + 3;
        text += &format!("%{v} = const {{value = {i}: i64}} : i64\n%{} = load %0, %{v} : tile<i32, 1>\n", v + 1);
        text += &format!("%{} = reshape %{} : i32\n%{} = add %{sum}, %{} : i32\n", v + 2, v + 1, v + 3, v + 2);
        sum = v + 3;
    }
    let v = 4 * n + 3;
    text + &format!(
        "%{v} = const {{value = 0: i64}} : i64\n%{} = reshape %{sum} : tile<i32, 1>\nstore %1, %{v}, %{}\n}}",
        v + 1,
        v + 1
    )
}

/// Compiles one kernel in a process of so many megabytes.
fn compile_within(megabytes: &str, kernel: &str) -> (Option<Response>, bool) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegulac"))
        .env("TEGULA_COMPILER_MB", megabytes)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The process may be dead before it has read all.
    let _ = write_frame(&mut input, &request(kernel, Emit::Artifact));
    drop(input);
    let answer = read_frame(&mut child.stdout.take().unwrap()).ok().flatten();
    (answer, child.wait().unwrap().success())
}

#[test]
fn a_loop_unrolled_thousands_of_times_compiles_in_little_memory() {
    let (answer, _) = compile_within("1500", &unrolled(8000));
    assert!(matches!(answer, Some(Response::Ok { .. })), "{answer:?}");
}

#[test]
fn memory_is_bounded_and_the_end_of_it_ends_the_process() {
    assert!(matches!(compile_within("8192", &unrolled(10)), (Some(Response::Ok { .. }), true)));
    assert!(matches!(compile_within("1", &unrolled(10)), (None, false)));
}

#[test]
fn it_ends_with_the_program_that_started_it() {
    // The pipe stays open: this test holds its other end.
    let script = "exec 3<&0; \"$0\" <&3 >/dev/null 3<&- & echo $!; sleep 1";
    let mut shell = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_tegulac")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let _input = shell.stdin.take();
    let pid = std::io::read_to_string(shell.stdout.take().unwrap()).unwrap();
    shell.wait().unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let begun = std::time::Instant::now();
    // Gone, or dead and not yet waited for.
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(begun.elapsed().as_secs() < 20, "it lives on: {}", state());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A stand-in for ptxas.
fn assembler(dir: &std::path::Path, script: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let file = dir.join("ptxas");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn cubin() -> Request {
    Request { target: "sm_80".into(), ..request("kernel @k() {\n}\n", Emit::Cubin) }
}

#[test]
fn an_assembler_ends_with_it_and_leaves_nothing_behind() {
    let (dir, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pid = dir.path().join("pid");
    let hangs = assembler(dir.path(), &format!("echo $$ >{0}.part; mv {0}.part {0}; exec sleep 600", pid.display()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegulac"))
        .env("TEGULA_PTXAS", hangs)
        .env("TMPDIR", temporary.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    write_frame(child.stdin.as_mut().unwrap(), &cubin()).unwrap();
    let begun = std::time::Instant::now();
    let wait = |done: &dyn Fn() -> bool, what: &str| {
        while !done() {
            assert!(begun.elapsed().as_secs() < 60, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    wait(&|| pid.exists(), "the assembler does not start");
    child.kill().unwrap();
    child.wait().unwrap();
    let pid = std::fs::read_to_string(&pid).unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    wait(&|| state().is_empty() || state().contains(") Z "), "the assembler lives on");
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0, "nothing is left in the temporary folder");
}

#[test]
fn an_assembler_that_fails_is_an_error_with_its_words() {
    let dir = tempfile::tempdir().unwrap();
    let asked = |script: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tegulac"))
            .env("TEGULA_PTXAS", assembler(dir.path(), script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        write_frame(&mut child.stdin.take().unwrap(), &cubin()).unwrap();
        let answer: Option<Response> = read_frame(&mut child.stdout.take().unwrap()).unwrap();
        assert!(child.wait().unwrap().success());
        answer.expect("an answer")
    };
    let error = |script: &str| match asked(script) {
        Response::Err { stage, message, .. } => (stage, message),
        other => panic!("{script}: {other:?}"),
    };
    let (stage, message) = error("echo 'ptxas fatal   : no licence' >&2; exit 3");
    assert_eq!((stage.as_str(), message.as_str()), ("ptxas", "no licence"));
    let (_, message) = error("kill -9 $$");
    assert!(message.contains("signal: 9"), "{message}");
    // More registers than a multiprocessor has for the launch: found although it says nothing.
    let (stage, message) = error("echo 'ptxas info    : Used 600 registers, used 1 barriers' >&2; printf ELF");
    assert!(
        stage == "ptxas"
            && message.starts_with("the kernel cannot be launched: a program needs 76800 registers, 11264 more"),
        "{message}"
    );
    match asked("echo 'ptxas info    : Used 40 registers, used 1 barriers' >&2; printf ELF") {
        Response::Ok { bytes, meta } => {
            assert_eq!((&bytes[..], meta.registers, meta.spill_bytes), (&b"ELF"[..], 40, 0))
        }
        other => panic!("{other:?}"),
    }
}
