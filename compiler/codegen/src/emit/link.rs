//! Linking: a relocatable object to a shared object, with lld.
//!
//! The rule for what a kernel may call: a function of its own module, or of libc or libm (LLVM itself puts in `memcpy`,
//! `memset` and, for math it has no instruction for, libm's functions). Everything else the host gives through
//! parameters. Anything else undefined is an error here, not at the first call.

use super::Error;
use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// LLVM's programs, as the build found them.
const LLVM_BIN: &str = env!("TEGULA_LLVM_BIN");

/// Links one object to a shared object. The result depends on the object alone: no time, no path, no build id.
///
/// # Errors
/// lld is missing, could not be run, or found an undefined symbol.
pub fn shared_object(object: &[u8]) -> Result<Vec<u8>, Error> {
    let io = |what: &str, e: std::io::Error| Error::Linker(format!("cannot {what}: {e}"));
    let dir = tempfile::Builder::new()
        .prefix("tegula-")
        .tempdir()
        .map_err(|e| io("make a temporary folder (TMPDIR chooses where)", e))?;
    let (input, output) = (dir.path().join("kernel.o"), dir.path().join("kernel.so"));
    fs::write(&input, object).map_err(|e| io("write the kernel's object to the temporary folder", e))?;

    let lld = lld()?;
    let run = Command::new(&lld)
        .args(["-shared", "-z", "defs", "-z", "now", "--build-id=none", "--hash-style=gnu", "--eh-frame-hdr"])
        .args(["--gc-sections", "--as-needed", "--color-diagnostics=never", "-o"])
        .args([&output, &input])
        .args(system_libraries()?)
        .output()
        .map_err(|e| Error::Linker(format!("cannot run {}: {e}", lld.display())))?;
    if !run.status.success() {
        let said = String::from_utf8_lossy(&run.stderr).trim().to_string();
        return Err(Error::Link(if said.is_empty() {
            format!("{} ended with {}", lld.display(), run.status)
        } else {
            said
        }));
    }
    fs::read(&output).map_err(|e| io("read the linked kernel", e))
}

/// The linker: `TEGULA_LLD`; then beside the LLVM this program was built with; then `ld.lld-22` or `ld.lld` on the path.
fn lld() -> Result<PathBuf, Error> {
    if let Some(named) = env::var_os("TEGULA_LLD").filter(|n| !n.is_empty()) {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(Error::Linker(format!("TEGULA_LLD names {}, which is no file", named.display())))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &'static str| env::split_paths(&path).map(move |dir| dir.join(name)).collect::<Vec<_>>();
    std::iter::once(Path::new(LLVM_BIN).join("ld.lld"))
        .chain(on_path("ld.lld-22"))
        .chain(on_path("ld.lld"))
        .find(|p| p.is_file())
        .ok_or_else(|| {
            Error::Linker(format!(
                "no ld.lld in {LLVM_BIN} or on the path: `./x setup` installs it (Debian's package lld-22), \
                 or set TEGULA_LLD to one"
            ))
        })
}

/// libm and libc: those this very process runs on, which are those the kernel will meet.
fn system_libraries() -> Result<[OsString; 2], Error> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])));
    let usual = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/usr/lib"];
    mapped
        .filter(|file| file.file_name().is_some_and(|name| name == "libc.so.6"))
        .filter_map(Path::parent)
        .chain(usual.into_iter().map(Path::new))
        .map(|dir| [dir.join("libm.so.6"), dir.join("libc.so.6")])
        .find(|pair| pair.iter().all(|file| file.is_file()))
        .map(|pair| pair.map(PathBuf::into_os_string))
        .ok_or_else(|| Error::Linker("cannot find libc.so.6 and libm.so.6, which kernels are linked against".into()))
}
