//! IR of kernels on which the compiler died, kept to reproduce the failure.

use crate::cache::DiskCache;
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};
use tegula_ir::protocol::Request;

/// Files that stay; when there are more, the oldest go.
const MOST: usize = 20;

/// Writes the IR of a kernel that broke the compiler to the folder `crashed` in the user's kernel cache, where the last
/// 20 stay; without a cache, to the folder for temporary files.
pub(super) fn save(name: &str, request: &Request) -> Option<PathBuf> {
    let cached = DiskCache::user_dir().map(|cache| cache.join("crashed"));
    let in_cache = cached.and_then(|dir| save_in(&dir, name, request).ok());
    in_cache.or_else(|| write(&std::env::temp_dir(), name, request).ok())
}

fn save_in(dir: &Path, name: &str, request: &Request) -> io::Result<PathBuf> {
    fs::create_dir_all(dir)?;
    let saved = write(dir, name, request)?;
    let mut all: Vec<(SystemTime, PathBuf)> = fs::read_dir(dir)?
        .flatten()
        .filter(|f| f.file_name().to_string_lossy().ends_with(".tile"))
        .filter_map(|f| Some((f.metadata().ok()?.modified().ok()?, f.path())))
        .filter(|(_, path)| *path != saved)
        .collect();
    all.sort();
    let excess = (all.len() + 1).saturating_sub(MOST);
    // Another process may have removed it first.
    all.iter().take(excess).for_each(|(_, path)| drop(fs::remove_file(path)));
    Ok(saved)
}

fn write(dir: &Path, name: &str, request: &Request) -> io::Result<PathBuf> {
    let tame: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(80).collect();
    let text =
        format!("// target {}{}\n{}", request.target, if request.checked { ", checked" } else { "" }, request.kernel);
    let mut file = tempfile::Builder::new().prefix(&format!("tegula-{tame}-")).suffix(".tile").tempfile_in(dir)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    Ok(file.keep()?.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula_ir::protocol::Emit;

    #[test]
    fn the_last_twenty_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "somebody else's").unwrap();
        let request = Request {
            kernel: "kernel @k() {\n}\n".into(),
            target: "sm_80".into(),
            emit: Emit::Artifact,
            checked: true,
        };
        let saved: Vec<PathBuf> = (0..25).map(|i| save_in(dir.path(), &format!("k {i}"), &request).unwrap()).collect();
        assert_eq!(fs::read_to_string(&saved[24]).unwrap(), "// target sm_80, checked\nkernel @k() {\n}\n");
        let there = saved.iter().filter(|path| path.exists()).count();
        assert_eq!(there, MOST);
        assert!(dir.path().join("notes.txt").exists());
    }
}
