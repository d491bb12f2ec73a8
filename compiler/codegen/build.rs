//! Lets this crate's programs and tests find libLLVM and libMLIR where they are installed: Debian keeps libMLIR outside
//! the loader's path. Only this crate links LLVM, so only it carries the run path. LLVM's programs lie beside them.

use std::{env, path::Path};

fn main() {
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
