//! NVIDIA's assembler takes what we make. It is proprietary and may be absent: `TEGULA_PTXAS` names it, or it is on the
//! path.

use crate::harness::{CONFIG, TARGETS, compile, skip};
use std::process::Command;
use tegula_ir::{
    protocol::Emit,
    testing::{conformance, random::program},
};

/// The assembler, if there is one.
fn ptxas() -> Option<String> {
    let name = std::env::var("TEGULA_PTXAS").unwrap_or_else(|_| "ptxas".into());
    let found = Command::new(&name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !found {
        skip("PTX is not assembled: no ptxas (TEGULA_PTXAS names one)");
    }
    found.then_some(name)
}

#[test]
fn everything_assembles() {
    let Some(ptxas) = ptxas() else { return };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (dir.path().join("k.ptx"), dir.path().join("k.cubin"));
    let mut kernels: Vec<(String, String)> =
        conformance::rows().into_iter().map(|r| (r.id.to_string(), r.kernel.text())).collect();
    kernels.extend((0..8).map(|s| (format!("seed {s}"), program(s, &CONFIG).row.kernel.text())));
    for (name, kernel) in kernels {
        for target in TARGETS {
            let (ptx, _) = compile(&kernel, target, Emit::Artifact, false).unwrap_or_else(|e| panic!("{name}: {e}"));
            std::fs::write(&input, &ptx).expect("the file is written");
            let run = Command::new(&ptxas)
                .args([format!("-arch={target}").as_str(), "-v", "-o"])
                .args([&output, &input])
                .output()
                .expect("ptxas runs");
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(run.status.success(), "{name} on {target}: {said}");
            assert!(!said.contains("C75"), "{name} on {target}: ptxas changed the code: {said}");
        }
    }
}
