//! Tile IR as text, from a file or standard input.

use std::ffi::OsStr;
use std::io::{self, Read};

use tegula::ir::Kernel;
use tegula_engine::Error;

/// Reads one kernel (`-`: from standard input) and checks it; errors name the file and the line. Its ops know their lines.
pub(super) fn read(file: &OsStr) -> Result<Kernel, Error> {
    if file == "-" {
        let mut text = String::new();
        let read = io::stdin().read_to_string(&mut text);
        read.map_err(|source| Error::Io { doing: "reading standard input", source })?;
        return check("standard input", &text);
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file);
    check(&name, &text.map_err(|e| Error::Usage(format!("cannot read the kernel {name}: {e}")))?)
}

fn check(name: &str, text: &str) -> Result<Kernel, Error> {
    let kernel = Kernel::parse_located(text, name).map_err(|e| Error::Usage(format!("{name}, {e}")))?;
    kernel.verify().map_err(|e| Error::Usage(e.to_string()))?;
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_with_file_and_line() {
        let error = |text: &str| check("a.tile", text).unwrap_err().to_string();
        assert!(error("kernel @k() {\n  nonsense\n}\n").starts_with("a.tile, line 2: "));
        let wrong = "kernel @k() {\n  %0 = const {value = 1: i32} : i32\n  %1 = sqrt %0 : i32\n}\n";
        assert!(error(wrong).starts_with("a.tile:3"), "{}", error(wrong));
    }
}
