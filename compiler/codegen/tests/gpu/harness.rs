//! Compiles kernels to PTX and runs them on the emulator, strictly.

#[path = "../common/emulated.rs"]
mod emulated;

pub use emulated::{CONFIG, Report, TARGETS, compile};
use emulated::{Code, launch};
use tegula_ir::{
    Kernel,
    protocol::{Emit, Meta},
    testing::Arg,
};
use tegula_ptx::{Completion, Counters};

/// Compiles a kernel and runs the whole grid on the emulator; gives what was reported, and counters.
///
/// # Errors
/// A fault of compilation or of the emulator.
pub fn run(
    target: &str,
    kernel: &Kernel,
    args: &mut [Arg],
    grid: [u32; 3],
    checked: bool,
) -> Result<(Vec<Report>, Meta, Counters), String> {
    let (ptx, meta) = compile(&kernel.text(), target, Emit::Artifact, checked)?;
    let code = Code { ptx: &ptx, meta: &meta, target, completion: Completion::Early };
    let (reports, counters) = launch(&code, kernel, args, grid)?;
    Ok((reports, meta, counters))
}

/// Says that a test was skipped, and why, also to the file that `TEGULA_SKIPS` names.
pub fn skip(why: &str) {
    use std::io::Write;
    eprintln!("skipped: {why}");
    if let Some(path) = std::env::var_os("TEGULA_SKIPS") {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
        log.and_then(|mut f| writeln!(f, "{why}")).expect("TEGULA_SKIPS can be written");
    }
}

/// A kernel from text, on so many warps.
pub fn kernel(text: &str, warps: usize) -> Kernel {
    let mut k = Kernel::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    k.verify().unwrap_or_else(|e| panic!("{e}\n{text}"));
    k.set_warps(warps);
    k
}

/// The patterns in an argument's memory.
pub fn bits(arg: &Arg) -> Vec<u64> {
    match arg {
        Arg::View(b) => b.bits(),
        _ => vec![],
    }
}

/// A small generator of numbers (SplitMix64).
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        tegula_ir::testing::random::next(&mut self.0)
    }
    /// In 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
