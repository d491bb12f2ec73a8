//! Lets this crate's programs and tests find libLLVM and libMLIR where they are installed: Debian keeps libMLIR outside
//! the loader's path. Only this crate links LLVM, so only it carries the run path. LLVM's programs lie beside them.

use std::{
    collections::hash_map::DefaultHasher,
    env, fs,
    hash::{Hash, Hasher},
    path::Path,
};

fn main() {
    // Part of every kernel cache's keys: another compiler must not be served this one's kernels.
    let mut hash = DefaultHasher::new();
    for dir in ["../ir/src", "src"] {
        println!("cargo::rerun-if-changed={dir}");
        sources(Path::new(dir), &mut hash);
    }
    println!("cargo::rustc-env=TEGULA_SOURCES={:016x}", hash.finish());

    println!("cargo::rerun-if-env-changed=MLIR_SYS_220_PREFIX");
    let prefix = env::var("MLIR_SYS_220_PREFIX").unwrap_or_default();
    let library = Path::new(&prefix).join("lib/libMLIR.so");
    println!("cargo::rerun-if-changed={}", library.display());
    // `.llvm/lib` holds links: the run path must name the folder they lead to, which is still there when the checkout
    // has moved. The first link leads to the installed folder's own name for the library.
    match std::fs::read_link(&library).ok().as_deref().and_then(Path::parent) {
        Some(dir) => {
            println!("cargo::rustc-link-arg=-Wl,-rpath,{}", dir.display());
            println!("cargo::rustc-env=TEGULA_LLVM_BIN={}", dir.with_file_name("bin").display());
        }
        None => {
            println!("cargo::error=no LLVM and MLIR 22 links at {}: run ./x setup", library.display());
        }
    }
}

/// Takes in names and contents of all files below `dir`, in order of name.
fn sources(dir: &Path, hash: &mut DefaultHasher) {
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, hash);
        } else {
            path.hash(hash);
            fs::read(&path).unwrap_or_default().hash(hash);
        }
    }
}
