//! `tegula run` from outside, on the demo model: what it says, in full and bit by bit the same.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

/// The output and the messages of a command that must succeed; input is what is typed.
fn run(model: &str, args: &[&str], input: &str) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegula"))
        .args(["run", model])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    (String::from_utf8(output.stdout).unwrap(), errors)
}

#[test]
fn answers() {
    let Some(path) = common::model("smollm2") else { return };
    let model = path.to_str().unwrap();

    // llama.cpp's greedy continuation begins with these words.
    let greedy = ["--raw", "-p", "The capital of France is", "--temperature", "0", "-n", "13"];
    let (text, report) = run(model, &greedy, "");
    assert_eq!(text, " Paris.\n\nThe United States has a population of approximately \n");
    assert!(report.contains("prompt 5 tokens") && report.contains("answer 13 tokens"), "{report}");

    // The same seed gives the same answer, on any number of threads; another seed another one.
    let ask = |seed: &str, threads: &str| {
        run(
            model,
            &["-p", "Tell me about the sea.", "-n", "24", "--temperature", "1.5", "--seed", seed, "-t", threads],
            "",
        )
        .0
    };
    let first = ask("1", "1");
    assert_eq!(first, ask("1", "2"));
    assert_ne!(first, ask("2", "2"));

    // A conversation: what was said before counts, whether it is kept in the cache or computed anew.
    let lines = run(model, &["--temperature", "0", "-n", "16"], "Hello!\n\nWho are you?\n").0;
    assert!(lines.lines().filter(|l| !l.is_empty()).count() >= 2, "{lines}");
    let alone = run(model, &["--temperature", "0", "-n", "16", "-p", "Hello!"], "").0;
    assert!(lines.starts_with(alone.trim_end()), "{lines:?} begins otherwise than {alone:?}");
}

#[test]
fn mistakes_are_explained() {
    let Some(path) = common::model("smollm2") else { return };
    for (args, part) in [
        (&["-p", "hi", "--temperature", "-1"][..], "temperature is -1; it must be 0 or more"),
        (&["-p", "hi", "--top-p", "1.5"], "top_p is 1.5"),
        (&["-p", "hi", "--context", "10"], "the context holds 10"),
        (&["-p", "hi", "-t", "0"], "0 is not in 1..=65535"),
        (&["--raw", "-p", ""], "the prompt is empty"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tegula")).arg("run").arg(&path).args(args).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(part), "{args:?}: {message}");
    }
}
