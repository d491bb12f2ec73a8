//! The `tegula` command from outside: output, exit codes, messages.

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tegula_engine::gguf::{GgmlType, Gguf, Writer};
use tegula_engine::model::arch;
use tegula_engine::pull::catalog;
use tegula_engine::tokenizer::Tokenizer;
use tempfile::TempDir;

fn tegula(home: &Path, args: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tegula")).env("TEGULA_HOME", home).args(args).output().unwrap()
}

fn good(home: &Path, args: &[impl AsRef<OsStr> + std::fmt::Debug]) -> String {
    let output = tegula(home, args);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    assert_eq!(error, "", "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a command that must fail with exit code `code` and no other output.
fn bad(home: &Path, code: i32, args: &[impl AsRef<OsStr> + std::fmt::Debug]) -> String {
    let output = tegula(home, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn tiny() -> Writer {
    let mut writer = Writer::new();
    writer
        .meta("general.architecture", "llama")
        .meta("note", "two\nlines")
        .meta("numbers", [3i32, -4, 5].as_slice())
        .meta("flags", [true, false].as_slice())
        .meta("tokenizer.ggml.model", "gpt2")
        .meta("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", ["a", "b", "ab", "<e>", "é"].as_slice())
        .meta("tokenizer.ggml.token_type", [1i32, 1, 1, 3, 1].as_slice())
        .meta("tokenizer.ggml.merges", ["a b"].as_slice())
        .meta("tokenizer.chat_template", "<e>{{ messages[0].content }}<e>")
        .tensor("w", &[32, 100], GgmlType::Q4_0, vec![1; 1800])
        .tensor("v", &[256], GgmlType::Q2_K, vec![1; 84]);
    writer
}

fn home_with_tiny() -> (TempDir, String) {
    let home = TempDir::new().unwrap();
    let file = home.path().join("tiny.gguf");
    fs::write(&file, tiny().finish()).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (home, file)
}

#[test]
fn help_names_every_command_and_where_to_start() {
    let home = TempDir::new().unwrap();
    let help = good(home.path(), &["--help"]);
    for part in [
        "run",
        "pull",
        "bench",
        "eval",
        "inspect",
        "tokenize",
        "compile",
        "opt",
        "Start with:  tegula run smollm2",
        "hf:OWNER/NAME/FILE.gguf",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
    for command in ["run", "pull", "bench", "eval", "inspect", "tokenize", "compile", "opt"] {
        let help = good(home.path(), &[command, "--help"]);
        assert!(help.contains("Examples:") && !help.contains("[`"), "{command}: {help}");
    }
    assert!(bad(home.path(), 2, &["pul"]).contains("a similar subcommand exists: 'pull'"));
    assert!(bad(home.path(), 2, &["pull"]).contains("<MODEL>"));
}

#[test]
fn inspect_shows_metadata_and_tensors() {
    let (home, file) = home_with_tiny();
    let text = good(home.path(), &["inspect", &file]);
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    has("note                       two\\nlines");
    has("numbers                    3 × i32: 3, -4, 5");
    has("flags                      2 × bool: true, false");
    has("Q4_0        1       3,200  1,800");
    has("Q2_K        1         256     84  not supported");
    assert!(text.contains("2 tensors, 3,456 parameters, 4.36 bits each"), "{text}");
    assert!(good(home.path(), &["inspect", &file, "--tensors"]).contains("w       Q4_0  "));
    assert_eq!(good(home.path(), &["inspect", &file, "--key", "note"]), "two\nlines\n");
    assert_eq!(good(home.path(), &["inspect", &file, "--key", "numbers"]), "3\n-4\n5\n");
    assert!(bad(home.path(), 1, &["inspect", &file, "--key", "no"]).contains("tiny.gguf: key `no`: missing"));
}

#[test]
fn tokenize_shows_tokens() {
    let (home, file) = home_with_tiny();
    assert_eq!(good(home.path(), &["tokenize", &file, "ab<e>b"]), "2  \"ab\"\n1  \"b\"\n2 tokens\n");
    assert_eq!(
        good(home.path(), &["tokenize", &file, "ab<e>", "--special"]),
        "2  \"ab\"\n3  \"<e>\"  control\n2 tokens\n"
    );
    assert_eq!(good(home.path(), &["tokenize", &file, "a<e>", "--chat", "--ids"]), "3 0 3\n");
    assert_eq!(good(home.path(), &["tokenize", &file, "é"]), "0 tokens\n");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegula"))
        .args(["tokenize", &file, "--ids"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"ba").unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"1 0\n");
}

#[test]
fn errors_are_one_message_and_exit_code_one() {
    let (home, file) = home_with_tiny();
    let message = bad(home.path(), 1, &["inspect", "smolm2"]);
    assert!(message.starts_with("error: there is no model `smolm2`. Give the path of a GGUF file"), "{message}");
    assert!(bad(home.path(), 1, &["inspect", "no/such.gguf"]).contains("there is no file no/such.gguf"));
    assert!(bad(home.path(), 1, &["pull", "hf:one/two"]).contains("hf:OWNER/NAME/FILE.gguf"));
    let cut = home.path().join("cut.gguf");
    fs::write(&cut, &tiny().finish()[..700]).unwrap();
    let message = bad(home.path(), 1, &["inspect", cut.to_str().unwrap()]);
    assert!(message.contains("cut.gguf: ") && message.lines().count() == 1, "{message}");
    assert_eq!(good(home.path(), &["pull", &file]).trim_end(), file);
    let folder = home.path().to_str().unwrap();
    assert_eq!(
        bad(home.path(), 1, &["run", folder, "-p", "hi"]),
        format!("error: {folder} is a folder; a GGUF file is expected\n")
    );
    assert!(bad(home.path(), 1, &["inspect", "/dev/null"]).contains("/dev/null is no ordinary file"));
}

#[test]
fn names_of_files_can_be_any_bytes_and_command_no_terminal() {
    let (home, file) = home_with_tiny();
    let odd = home.path().join(OsStr::from_bytes(b"b\xff\x1b[31m.gguf"));
    fs::copy(file, &odd).unwrap();
    let args = |command: &str| [OsString::from(command), odd.clone().into_os_string()];
    let text = good(home.path(), &args("inspect"));
    assert!(text.lines().next().unwrap().ends_with("/b\u{fffd}\\u{1b}[31m.gguf"), "{text}");
    // For programs, its bytes as they are.
    let output = tegula(home.path(), &args("pull"));
    assert_eq!(output.stdout, [odd.as_os_str().as_bytes(), b"\n"].concat());
    let gone = OsString::from_vec(b"/nowhere/\xff\x1b[31m.gguf".to_vec());
    assert_eq!(
        bad(home.path(), 1, &["inspect".into(), gone]),
        "error: there is no file /nowhere/\u{fffd}\\u{1b}[31m.gguf\n"
    );
}

#[test]
fn numbers_out_of_range_are_answered_by_the_range() {
    let (home, file) = home_with_tiny();
    for (args, range) in [
        (&["run", &file, "-n", "0"][..], "1 to 16777216"),
        (&["run", &file, "--context", "1"], "2 to 16777216"),
        (&["run", &file, "--context", "99999999999"], "2 to 16777216"),
        (&["run", &file, "--threads", "0"], "1 to 1024"),
        (&["run", &file, "--threads", "65535"], "1 to 1024"),
        (&["run", &file, "--threads", "-1"], "1 to 1024"),
        (&["run", &file, "--seed", "-1"], "0 to 18446744073709551615"),
        (&["run", &file, "--top-k", "-1"], "0 to 4294967295"),
        (&["bench", &file, "--repeat", "0"], "1 to 1000000"),
        (&["bench", &file, "--prompt", "-5"], "1 to 16777216"),
        (&["eval", "perplexity", &file, "--text", "x", "--windows", "0"], "1 to 1000000"),
        (&["eval", "perplexity", &file, "--text", "x", "--window", "3"], "4 to 16777216"),
    ] {
        let message = bad(home.path(), 2, args);
        assert!(message.contains(&format!("expected a whole number from {range}")), "{args:?}: {message}");
    }
}

#[test]
fn lists_with_holes_and_settings_given_twice_are_refused() {
    let home = TempDir::new().unwrap();
    for passes in ["", "cse,,dce", "cse,", " "] {
        let message = bad(home.path(), 1, &["opt", "no.tile", "--passes", passes]);
        assert!(message.starts_with(&format!("error: --passes `{passes}`: expected names")), "{message}");
    }
    let message = bad(home.path(), 1, &["compile", "softmax", "--emit", "built", "--set", "N=4", "--set", "N=8"]);
    assert_eq!(message, "error: --set N=… is given twice\n");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (_home, file) = home_with_tiny();
    let mut child = Command::new(env!("CARGO_BIN_EXE_tegula"))
        .args(["inspect", &file])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_list_says_what_is_here() {
    let home = TempDir::new().unwrap();
    let list = good(home.path(), &["pull", "--list"]);
    let row = |list: &str| list.lines().find(|line| line.starts_with("smollm2 ")).unwrap().to_owned();
    assert!(row(&list).contains("98.4 MB  no  ") && row(&list).contains("Apache-2.0"), "{list}");
    fs::create_dir(home.path().join("models")).unwrap();
    let model = fs::File::create(home.path().join("models/SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    model.set_len(98_362_432).unwrap();
    assert!(row(&good(home.path(), &["pull", "--list"])).contains("98.4 MB  yes"));
}

/// The folder of models is empty: a download would fail in other words.
#[test]
fn models_that_cannot_run_are_marked_and_refused_before_they_are_fetched() {
    let home = TempDir::new().unwrap();
    let list = good(home.path(), &["pull", "--list"]);
    for entry in catalog::MODELS {
        let row: Vec<&str> =
            list.lines().find(|line| line.starts_with(&format!("{} ", entry.name))).unwrap().split("  ").collect();
        let cells: Vec<&str> = row.iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells[3], if entry.can_run() { "yes" } else { "not yet" }, "{list}");
        if entry.can_run() {
            continue;
        }
        for command in [
            &["run", entry.name][..],
            &["bench", entry.name],
            &["eval", "perplexity", entry.name, "--text", "/dev/null"],
        ] {
            assert_eq!(
                bad(home.path(), 1, command),
                format!(
                    "error: `{}` cannot be run yet: its architecture is `{}`, and those that can be run are: llama\n",
                    entry.name, entry.architecture
                )
            );
        }
    }
    let message = bad(home.path(), 1, &["run", "smolm2"]);
    assert!(message.contains("or one of: smollm2; not to be run yet: gemma3-270m, qwen"), "{message}");
}

/// What the catalogue says of a model is what its file says.
#[test]
fn models_that_are_here_are_of_the_architecture_that_is_listed_and_run_if_it_is_said() {
    for entry in catalog::MODELS {
        let Some(path) = tegula_engine::pull::cached(entry.name).unwrap() else { continue };
        let file = Gguf::open(path).unwrap();
        assert_eq!(file.require::<&str>("general.architecture").unwrap(), entry.architecture);
        let runs = arch::of(&file).and_then(|a| (a.config)(&file)).and_then(|_| Tokenizer::from_gguf(&file));
        assert_eq!(runs.is_ok(), entry.can_run(), "{}", entry.name);
    }
}

#[test]
fn the_real_model_is_what_it_should_be() {
    let Some(path) = common::model("smollm2") else { return };
    let home = TempDir::new().unwrap();
    let path = path.to_str().unwrap();
    let text = good(home.path(), &["inspect", path]);
    assert!(text.contains("272 tensors, 134,515,008 parameters"), "{text}");
    let count = |ty: &str, count: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{ty} "))).unwrap();
        assert_eq!(line.split_whitespace().nth(1), Some(count), "{line}");
    };
    count("Q4_1", "210");
    count("Q8_0", "1");
    count("F32", "61");
    assert_eq!(good(home.path(), &["tokenize", path, "Hello world", "--ids"]), "19556 905\n");
}
