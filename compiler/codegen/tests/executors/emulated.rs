//! The emulated GPUs as executors.

#[path = "../common/emulated.rs"]
mod launch;

pub use launch::{CONFIG, TARGETS, compile};
use launch::{Code, launch};
use tegula_ir::{
    Kernel,
    protocol::{Emit, Meta},
    testing::Arg,
};
use tegula_ptx::Completion::{Early, Late};

/// Compiles a kernel and runs it.
pub fn on_gpu(target: &str, kernel: &Kernel, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let (ptx, meta) = compile(&kernel.text(), target, Emit::Artifact, checked)?;
    run(&ptx, &meta, target, kernel, args, grid)
}

/// Runs PTX with early and then with late completion, which must leave the same bits; an error is a fault of the emulator
/// or one that the kernel reported.
pub fn run(
    ptx: &str,
    meta: &Meta,
    target: &str,
    kernel: &Kernel,
    args: &mut [Arg],
    grid: [u32; 3],
) -> Result<(), String> {
    let mut late = args.to_vec();
    let (reports, _) = launch(&Code { ptx, meta, target, completion: Early }, kernel, args, grid)?;
    launch(&Code { ptx, meta, target, completion: Late }, kernel, &mut late, grid)?;
    for ((early, late), name) in args.iter().zip(&late).zip(&kernel.params) {
        if let (Arg::View(early), Arg::View(late)) = (early, late)
            && early.bytes() != late.bytes()
        {
            return Err(format!("`{name}` depends on how soon asynchronous results arrive"));
        }
    }
    crate::complaint(reports.iter().map(|r| (r.0 as usize, r.1)), &meta.sites)
}
