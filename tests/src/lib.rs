//! What tests across crates share: real models, reference data, honest skipping, and the figures of `./x test --full`.

pub mod figure;
mod model;
mod skip;
pub mod status;

pub use model::model;
pub use skip::skip;

use std::path::PathBuf;

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
