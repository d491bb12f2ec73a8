//! `tegula run` from outside, on the demo model: what it says, in full and bit by bit the same.

mod common;

use std::io::Write;
use std::process::{Command, Stdio};

/// The output and the messages of a command that must succeed; input is what is typed.
fn run(model: &str, args: &[&str], input: impl AsRef<[u8]>) -> (String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegula"))
        .args(["run", model])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_ref()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {errors}");
    (String::from_utf8(output.stdout).unwrap(), errors)
}

#[test]
fn answers() {
    let Some(path) = common::model("smollm2") else { return };
    let model = path.to_str().unwrap();

    // llama.cpp's greedy continuation begins with these words if the weights are made f32 first.
    let greedy = ["--raw", "-p", "The capital of France is", "--temperature", "0", "-n", "13"];
    let (text, report) = run(model, &greedy, "");
    assert_eq!(text, " Paris.\n\nThe answer is: 2018\n");
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
fn a_conversation_outlives_its_context() {
    let Some(path) = common::model("smollm2") else { return };
    let model = path.to_str().unwrap();
    let long = "word ".repeat(100);
    let input = [b"Hi\nTell me more\n\xff\xfe and more\n", long.as_bytes(), b"\nThe end\n"].concat();
    let (text, notes) = run(model, &["--context", "80", "-n", "30", "--temperature", "0"], input);
    let count = |part: &str| notes.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("[prompt "), 4, "{notes}");
    assert!(count("note: the context of 80 tokens is full: the oldest turn") >= 1, "{notes}");
    assert_eq!(count("note: the line is not UTF-8 throughout"), 1, "{notes}");
    assert_eq!(count("note: the prompt has 1"), 1, "{notes}");
    assert!(count("tokens/s, cut short by -n 30]") >= 1, "{notes}");
    assert!(!text.is_empty());

    // The context ends an answer too.
    let notes = run(model, &["--context", "40", "--temperature", "0", "-p", "Tell me a long story."], "").1;
    assert!(notes.contains("tokens/s, cut short: the context holds 40 tokens]"), "{notes}");
    let notes = run(model, &["--context", "100000", "-n", "1", "-p", "hi"], "").1;
    assert!(notes.contains("note: --context 100000: the model was made for 8192 tokens; using these"), "{notes}");
    assert!(notes.contains("; answer 1 token, cut short by -n 1]"), "{notes}");
}

#[test]
fn mistakes_are_explained() {
    let Some(path) = common::model("smollm2") else { return };
    for (args, part) in [
        (&["-p", "hi", "--temperature", "-1"][..], "temperature is -1; it must be 0 or more"),
        (&["-p", "hi", "--top-p", "1.5"], "top_p is 1.5"),
        (&["-p", "hi", "--context", "10"], "the context holds 10"),
        (&["--raw", "-p", ""], "the prompt is empty"),
        (&["--raw", "-p", "one two three", "--context", "3"], "the prompt has 3 tokens; the context holds 3"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tegula")).arg("run").arg(&path).args(args).output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(part), "{args:?}: {message}");
        // Before the weights are packed.
        assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    }
}

#[test]
fn lengths_are_checked_before_weights_are_packed() {
    let Some(path) = common::model("smollm2") else { return };
    let text = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&text, "word ".repeat(100)).unwrap();
    let (model, text) = (path.to_str().unwrap(), text.path().to_str().unwrap());
    let error = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tegula")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        error(&["bench", model, "--prompt", "8193"]),
        "error: --prompt 8193: the model was made for 8192 tokens\n"
    );
    let eval = |more: &[&str]| error(&[&["eval", "perplexity", model, "--text", text][..], more].concat());
    assert!(eval(&[]).ends_with("tokens; one window alone takes 512 (--window)\n"));
    assert_eq!(
        eval(&["--window", "40", "--windows", "3"]),
        "error: the text is enough for 2 windows of 40 tokens: use --windows 2\n"
    );
    // Without a number, those that there are.
    let args = ["eval", "perplexity", model, "--text", text, "--window", "40"];
    let output = Command::new(env!("CARGO_BIN_EXE_tegula")).args(args).output().unwrap();
    let (out, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains(" over 2 windows of 40 tokens"), "{out}{notes}");
    assert!(notes.contains("note: the text has 2 windows of 40 tokens\n"), "{notes}");
}
