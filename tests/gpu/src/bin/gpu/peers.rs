//! The same operations by others on the same machine: `peers.py`, if there is a Python with PyTorch or Triton.

use crate::{device::Chosen, options::Sizes};
use serde_json::{Value, json};
use std::{
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Where the script is: beside this program, or where this program was built.
fn script() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|p| Some(p.parent()?.join("peers.py")));
    let source = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers.py"));
    beside.into_iter().chain([source]).find(|p| p.is_file())
}

/// What the script says, or why it says nothing.
pub fn run(device: Chosen, sizes: Sizes, left: Duration) -> Value {
    let absent = |why: String| json!({ "absent": why });
    let Chosen::Cuda(n) = device else { return absent("the emulator has no time to compare with".into()) };
    if sizes == Sizes::Small {
        return absent("sizes are small".into());
    }
    let Some(script) = script() else { return absent("peers.py is not beside this program".into()) };
    // A file takes what it says, so that no pipe fills up.
    let out = std::env::temp_dir().join(format!("tegula-peers-{}.json", std::process::id()));
    let file = match File::create(&out) {
        Ok(file) => file,
        Err(e) => return absent(format!("{}: {e}", out.display())),
    };
    let mut command = Command::new("python3");
    command.arg(script).arg("--device").arg(n.to_string());
    command.arg("--seconds").arg(format!("{:.1}", (left.as_secs_f64() - 5.0).max(1.0)));
    command.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return absent(format!("python3: {e}")),
    };
    let begun = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if begun.elapsed() < left => sleep(Duration::from_millis(50)),
            _ => {
                // Its time is over.
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let _ = std::fs::remove_file(&out);
    // It writes all that it knows after each operation; the last whole line counts.
    let last = text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let ended = status.map_or("its time was over".into(), |s| s.to_string());
    last.unwrap_or_else(|| absent(format!("peers.py said nothing: {ended}")))
}
