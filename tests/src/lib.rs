//! What tests across crates share: real models, reference data, honest skipping, and the figures of `./x test --full`.

pub mod figure;
pub mod status;

use std::{fs::OpenOptions, io::Write, path::PathBuf};

/// The path of a model known by name, if it has been fetched; if not, the calling test is reported as skipped.
pub fn model(name: &str) -> Option<PathBuf> {
    match tegula_engine::pull::cached(name) {
        Ok(Some(path)) => Some(path),
        Ok(None) => {
            skip(&format!("model {name} is not here; `tegula pull {name}` fetches it"));
            None
        }
        Err(e) => {
            skip(&format!("model {name}: {e}"));
            None
        }
    }
}

/// Notes that a check could not be made here: `./x test` counts and lists these.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("TEGULA_SKIPS") {
        let line = OpenOptions::new().append(true).create(true).open(path);
        // A note that cannot be written is still on standard error.
        let _ = line.and_then(|mut f| writeln!(f, "{why}"));
    }
}

/// A file of `tests/data`.
pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// The values of a NumPy file of little-endian f32 (format version 1: a 10-byte head, then a text header of the length
/// that its last two bytes give).
pub fn read_npy(name: &str) -> Vec<f32> {
    let path = data(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(bytes.starts_with(b"\x93NUMPY\x01"), "{} is no NumPy file of version 1", path.display());
    let start = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert!(String::from_utf8_lossy(&bytes[10..start]).contains("'<f4'"), "{} holds no f32", path.display());
    bytes[start..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}
