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
