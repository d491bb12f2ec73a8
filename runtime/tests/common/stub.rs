//! Runs tests in processes of their own, where the stub is the CUDA driver.

#![allow(dead_code)]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Set in such a process.
const INSIDE: &str = "TEGULA_TEST_INSIDE";

/// The stub's library, which cargo builds for these tests.
fn library() -> PathBuf {
    let exe = env::current_exe().expect("this program's path");
    let folders = exe.ancestors().skip(1).take(2).map(|d| d.join("libtegula_stub.so"));
    let found = folders.clone().find(|f| f.exists());
    found.unwrap_or_else(|| panic!("expected one of {:?}", folders.collect::<Vec<_>>()))
}

/// A folder in which the stub has the driver's name.
pub fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::os::unix::fs::symlink(library(), dir.path().join(name)).expect("a link");
    }
    dir
}

/// Whether this is the process that the stub serves.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Runs the test `name` in such a process, with these variables set.
pub fn run(name: &str, variables: &[(&str, &str)]) {
    run_with(name, folder().path(), variables);
}

/// The same where no driver is found.
pub fn run_without_a_driver(name: &str) {
    run_with(name, tempfile::tempdir().expect("a temporary folder").path(), &[]);
}

/// A test in processes of its own, once for each set of variables.
#[macro_export]
macro_rules! on_the_stub { ($(
    fn $name:ident($([$($variable:literal = $value:literal),*])+) $body:block
)*) => {$(
    #[test]
    fn $name() {
        if stub::is_inside() {
            $body
        } else {
            $(stub::run(stringify!($name), &[$(($variable, $value)),*]);)+
        }
    }
)*} }

fn run_with(name: &str, driver: &Path, variables: &[(&str, &str)]) {
    let mut child = Command::new(env::current_exe().expect("this program's path"));
    // Captured by this test, not by the child, so that failures are seen.
    child.args(["--exact", name, "--nocapture"]).env(INSIDE, "1").env("LD_LIBRARY_PATH", driver);
    for (variable, _) in env::vars_os().filter(|(v, _)| v.to_string_lossy().starts_with("TEGULA_STUB")) {
        child.env_remove(variable);
    }
    let output = child.envs(variables.iter().copied()).output().expect("this program again");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprint!("{err}");
    assert!(output.status.success() && out.contains("1 passed"), "{variables:?}: {}\n{out}\n{err}", output.status);
}
