//! Tests that cannot check something on this machine. Other crates' tests include this file by its path.

use std::fs::File;
use std::io::Write;

/// Says on standard error that the calling test is skipped and why, and adds the line to the file that `TEGULA_SKIPS`
/// names, where `./x test` counts them.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}", thread.name().unwrap_or("test"));
    eprintln!("skipped: {line}");
    if let Some(path) = std::env::var_os("TEGULA_SKIPS") {
        let log = File::options().create(true).append(true).open(path);
        log.and_then(|mut file| writeln!(file, "{line}")).expect("TEGULA_SKIPS can be written");
    }
}
