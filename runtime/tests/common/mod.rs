//! A stand-in for the compiler: speaks its protocol, misbehaves on demand, and "compiles" kernels of known names from C
//! written here, so that the runtime is tested against the ABI as documented, and without the compiler.
//!
//! It is the test program itself, run again by a small script with its frames on another descriptor, since the test
//! harness writes to standard output.

#![allow(dead_code)]

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::FromRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
};
use tegula_ir::{
    Loc,
    protocol::{self, Meta, Request, Response, Site, SiteKind, read_frame, write_frame},
};

/// A script that is such a compiler. The file using this needs a test `fake_compiler` that calls [`serve`].
pub fn fake(dir: &Path, version: &str) -> PathBuf {
    let path = dir.join("tegulac");
    let exe = std::env::current_exe().unwrap();
    let log = dir.join("log");
    let script = format!(
        "#!/bin/sh\n\
         echo \"$$ $*\" >> '{log}'\n\
         if [ \"$1\" = --version ]; then echo '{version}'; exit 0; fi\n\
         exec 3>&1 1>/dev/null\n\
         FAKE_COMPILER=1 exec '{exe}' --exact fake_compiler --nocapture\n",
        log = log.display(),
        exe = exe.display(),
    );
    // Another name first: a file that is still open for writing somewhere cannot be run.
    let fresh = dir.join("tegulac.new");
    fs::write(&fresh, script).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(fresh, &path).unwrap();
    path
}

/// How often the script was started: with a request to come, and for its version.
pub fn starts(dir: &Path) -> (usize, usize) {
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let versions = log.lines().filter(|l| l.contains("--version")).count();
    (log.lines().count() - versions, versions)
}

/// Process numbers of the compilers started in `dir`, those asked for their version not counted.
pub fn processes(dir: &Path) -> Vec<i32> {
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let lines = log.lines().filter(|l| !l.contains("--version"));
    lines.map(|l| l.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// The compiler's main loop, when this process is one.
pub fn serve() {
    if std::env::var_os("FAKE_COMPILER").is_none() {
        return;
    }
    // SAFETY: the script opened it for this process alone.
    let mut out = unsafe { File::from_raw_fd(3) };
    let mut input = std::io::stdin();
    while let Some(request) = read_frame::<Request>(&mut input).unwrap() {
        answer(&request, &mut out);
    }
    std::process::exit(0);
}

fn answer(request: &Request, out: &mut File) {
    let name = request.kernel.split(['@', '(']).nth(1).unwrap_or_default();
    let send = |out: &mut File, response: Response| write_frame(out, &response).unwrap();
    match name {
        "aborts" => {
            eprintln!("LLVM ERROR: cannot select");
            std::process::abort();
        }
        "exits" => std::process::exit(3),
        "hangs" => std::thread::sleep(std::time::Duration::from_secs(600)),
        "babbles" => out.write_all(b"Hello! I am a compiler.").unwrap(),
        "cuts" => {
            let half = [b"TGLC", &protocol::VERSION.to_le_bytes()[..], b"\xff\0\0\0half"].concat();
            out.write_all(&half).unwrap();
            std::process::exit(0);
        }
        "closes" => {
            // SAFETY: nothing uses it afterwards.
            unsafe { libc::close(3) };
            std::thread::sleep(std::time::Duration::from_secs(600));
        }
        "wrong" => send(out, Response::Err { stage: "lower".into(), message: "no such op".into(), loc: None }),
        "nothing" => send(out, Response::Ok { bytes: b"not a shared object".to_vec(), meta: Meta::default() }),
        _ if C.iter().any(|(n, _)| *n == name) => {
            let source =
                C.iter().filter(|(n, _)| *n == name).map(|(_, c)| format!("{PRELUDE}{c}\n")).collect::<String>();
            let dir = tempfile::tempdir().unwrap();
            let meta = Meta { scratch_bytes: 1000, sites: sites(), remarks: vec!["from C".into()], ..Meta::default() };
            send(out, Response::Ok { bytes: compile_c(&source, dir.path()), meta });
        }
        _ => {
            let bytes = format!("{} for {}", request.kernel.lines().next().unwrap_or_default(), request.target);
            send(out, Response::Ok { bytes: bytes.into_bytes(), meta: Meta { scratch_bytes: 64, ..Meta::default() } });
        }
    }
}

fn sites() -> Vec<Site> {
    let site = |kind, message: &str, line| Site { kind, message: message.into(), loc: Loc::new("k.rs", line, 9) };
    vec![
        site(SiteKind::Assert, "program is no multiple of 7", 10),
        site(SiteKind::Index, "axis 0 of `x`", 11),
        site(SiteKind::Print { elem: "i32".into(), shape: vec![2] }, "pair", 12),
    ]
}

const PRELUDE: &str = "
#include <stdint.h>
#include <string.h>
typedef struct ctx { int32_t grid[3]; uint32_t flags; void (*report)(const struct ctx*, uint32_t, uint64_t, int64_t); void* user; } ctx;
#define KERNEL void tegula_kernel(const uint64_t* args, const ctx* c, uint64_t begin, uint64_t end, uint8_t* scratch)
#define PROGRAMS for (uint64_t p = begin; p < end; p++)
";

/// Kernels by name.
const C: &[(&str, &str)] = &[
    // (out: view_mut<i64, 1>): counts the runs of each program.
    ("counts", "KERNEL { int64_t* out = (int64_t*)args[0]; PROGRAMS out[p * args[2]] += 1; }"),
    // (out: view_mut<i64, 1>, any others): copies the first words of all arguments, then grid and flags.
    (
        "words",
        "KERNEL { int64_t* out = (int64_t*)args[0]; for (int i = 0; i < 24; i++) out[i] = args[i];
         for (int i = 0; i < 3; i++) out[24 + i] = c->grid[i]; out[27] = c->flags; out[28] = (uintptr_t)scratch % 64; }",
    ),
    // (out: view_mut<i64, 1>): a sum by way of scratch memory, which threads must not share.
    (
        "scratch",
        "KERNEL { int64_t* out = (int64_t*)args[0]; PROGRAMS { memset(scratch, (int)(p % 100), 1000); int64_t s = 0;
         for (int i = 0; i < 1000; i++) s += ((volatile uint8_t*)scratch)[i]; out[p] = s; } }",
    ),
    ("asserts", "KERNEL { PROGRAMS { if (p % 7 == 0 && p) c->report(c, 0, p, 0); if (p == 9 && (c->flags & 1)) c->report(c, 1, p, -4); } }"),
    ("prints", "KERNEL { PROGRAMS { c->report(c, 2, p, p); c->report(c, 2, p, (uint32_t)-1); } }"),
    ("empty", "KERNEL { }"),
    // Spins for as many rounds as the scalar says.
    ("spins", "KERNEL { PROGRAMS for (volatile uint64_t i = 0; i < args[0]; i++); }"),
];

/// A shared object from C.
pub fn compile_c(source: &str, dir: &Path) -> Vec<u8> {
    let (c, so) = (dir.join("k.c"), dir.join("k.so"));
    fs::write(&c, source).unwrap();
    let done = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&so).arg(&c).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fs::read(so).unwrap()
}
