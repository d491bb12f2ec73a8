//! A model on a GPU whose driver is the stub: the same PTX as on the emulated GPU, through the driver's API, streams and
//! memory of its own, so that the text is the same.

mod common;
#[path = "../../tests/src/shortened.rs"]
mod shortened;
#[path = "../../runtime/tests/common/stub.rs"]
mod stub;

use std::process::Command;
use tegula_engine::gguf::Gguf;

#[test]
fn a_model_says_the_same_on_the_stub_and_on_the_emulator() {
    let Some(path) = common::model("smollm2") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.gguf");
    std::fs::write(&file, shortened::shortened(&Gguf::open(path).unwrap(), 2)).unwrap();
    let driver = stub::folder();
    let run = |device: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        command.arg("run").arg(&file).args([
            "--raw",
            "-p",
            "The capital of France is",
            "--temperature",
            "0",
            "-n",
            "3",
        ]);
        let output = command
            .args(["--device", device])
            .env("LD_LIBRARY_PATH", driver.path())
            .env("TEGULA_STUB_ARCH", "sm_80")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{device}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = run("cuda:0");
    assert!(!text.trim().is_empty());
    assert_eq!(text, run("emulated:sm_80:fast"));
}
