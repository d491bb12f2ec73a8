//! Real models, if they are here. The engine's own tests include this file, and `skip.rs`, by their paths.

use super::skip::skip;
use std::path::PathBuf;

/// The path of a model known by name, if it has been fetched; if not, the calling test is reported as skipped.
pub fn model(name: &str) -> Option<PathBuf> {
    let path = tegula_engine::pull::cached(name).expect("a model this test knows");
    if path.is_none() {
        skip(&format!("model {name} is not here; `tegula pull {name}` fetches it"));
    }
    path
}
