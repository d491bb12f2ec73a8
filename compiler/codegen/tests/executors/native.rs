//! The CPU as an executor.

#[path = "../common/native.rs"]
mod call;

pub use call::targets;
use tegula_codegen::service::answer;
use tegula_ir::{
    Kernel,
    protocol::{Emit, Meta, Request, Response},
    testing::Arg,
};

/// Compiles a kernel and runs it.
pub fn on_cpu(target: &str, kernel: &Kernel, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let request = Request { kernel: kernel.text(), target: target.into(), emit: Emit::Artifact, checked };
    let (code, meta) = match answer(&request) {
        Response::Ok { bytes, meta } => (bytes, meta),
        Response::Err { stage, message, loc } => return Err(format!("{stage} failed: {message} at {loc:?}")),
    };
    run(&code, &meta, args, grid, checked)
}

/// Runs compiled code; an error is a fault that it reported.
pub fn run(code: &[u8], meta: &Meta, args: &mut [Arg], grid: [u32; 3], checked: bool) -> Result<(), String> {
    let mut words: Vec<u64> = vec![];
    for arg in args.iter_mut() {
        match arg {
            Arg::View(b) => {
                words.push(b.bytes_mut().as_mut_ptr() as u64);
                words.extend(b.extents.iter().chain(&b.strides).map(|v| *v as u64));
            }
            Arg::Scalar(s) => words.push(s.bits),
            Arg::Packed(bytes, k, n, ..) => words.extend([bytes.as_ptr() as u64, *k as u64, *n as u64]),
        }
    }
    let reports = call::call(code, meta, &words, grid.map(|g| g as i32), checked);
    crate::complaint(reports.iter().map(|r| (r.0 as usize, r.1)), &meta.sites)
}
