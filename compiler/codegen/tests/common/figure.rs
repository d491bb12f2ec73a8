//! Figures of tests.

use std::io::Write;

/// A count and what it must be at least, as a line of JSON for the file that `TEGULA_FIGURES` names (tests/README.md).
pub fn figure(name: &str, value: usize, least: usize) {
    let Some(path) = std::env::var_os("TEGULA_FIGURES") else { return };
    let pass = value >= least;
    let line = format!("{{\"name\":{name:?},\"value\":{value},\"bound\":\"≥ {least}\",\"pass\":{pass}}}\n");
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    // One write, since tests run beside each other.
    file.and_then(|mut f| f.write_all(line.as_bytes())).expect("TEGULA_FIGURES can be written");
}
