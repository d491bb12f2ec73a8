//! What tests share: real models, if they are here.

use std::io::Write;
use std::path::PathBuf;

/// The path of a model known by name, if it has been fetched. If not, says on stderr that the calling test is
/// skipped, and adds a line to the file named by `TEGULA_SKIP_LOG`, so that skipped checks can be counted.
pub fn model(name: &str) -> Option<PathBuf> {
    let path = tegula_engine::pull::cached(name).expect("a model this test knows");
    if path.is_none() {
        skip(&format!("model {name} is not here; `tegula pull {name}` fetches it"));
    }
    path
}

fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}", thread.name().unwrap_or("test"));
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("TEGULA_SKIP_LOG") {
        let log = std::fs::File::options().create(true).append(true).open(path);
        log.and_then(|mut file| writeln!(file, "{line}")).expect("TEGULA_SKIP_LOG can be written");
    }
}
