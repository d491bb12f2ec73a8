//! What a compiled kernel needs, for `tegula compile --emit stats`.

use std::io::{self, Write};

use tegula::compile::{CompileError, Output};
use tegula::ir::gpu::occupancy::Limits;
use tegula::ir::protocol::{Meta, NO_TOOL};

/// What is said where one of NVIDIA's tools is not installed; `None` if something else is wrong.
pub(super) fn missing_tool(e: &CompileError) -> Option<&str> {
    match e {
        CompileError::Rejected { message, .. } if message.starts_with(NO_TOOL) => Some(message),
        _ => None,
    }
}

/// Writes what a CPU's kernel needs.
pub(super) fn cpu(target: &str, output: &Output, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "target         {target}\ncode           {} bytes", output.bytes.len())?;
    writeln!(out, "scratch        {} bytes a thread", output.meta.scratch_bytes)?;
    rest(&output.meta, out)
}

/// Writes what a GPU's kernel needs. `output` is machine code, or PTX where `unassembled` says why it is that.
pub(super) fn gpu(target: &str, output: &Output, unassembled: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    let meta = &output.meta;
    let form = if unassembled.is_some() { "PTX" } else { "machine code" };
    writeln!(out, "target         {target}\ncode           {} bytes of {form}", output.bytes.len())?;
    writeln!(out, "warps          {} ({} threads)", meta.warps, meta.warps * 32)?;
    writeln!(out, "shared memory  {} bytes", meta.shared_bytes)?;
    match unassembled {
        Some(why) => writeln!(out, "registers      unknown: {why}")?,
        None => {
            writeln!(out, "registers      {} a thread", meta.registers)?;
            writeln!(out, "spills         {} bytes a thread", meta.spill_bytes)?;
            writeln!(out, "local memory   {} bytes a thread", meta.stack_bytes)?;
            let limits = Limits::of(target);
            let fits = limits
                .and_then(|l| Some((l, l.occupancy(meta.warps, meta.registers, meta.shared_bytes as usize).ok()?)));
            if let Some((limits, o)) = fits {
                let share = 100 * o.warps / limits.warps;
                writeln!(
                    out,
                    "occupancy      {share} %: {} of {} warps ({} programs a multiprocessor), limited by {}",
                    o.warps, limits.warps, o.programs, o.limit
                )?;
            }
        }
    }
    rest(meta, out)
}

fn rest(meta: &Meta, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "reports        {}", meta.sites.len())?;
    meta.remarks.iter().try_for_each(|remark| writeln!(out, "remark         {remark}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = vec![];
        f(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_gpu_kernels_needs_are_told() {
        let meta =
            Meta { warps: 4, registers: 128, spill_bytes: 8, stack_bytes: 16, shared_bytes: 512, ..Meta::default() };
        let output = Output { bytes: vec![0; 100], meta };
        let told = text(|out| gpu("sm_80", &output, None, out));
        assert!(told.contains("registers      128 a thread\nspills         8 bytes a thread\n"), "{told}");
        assert!(told.contains("25 %: 16 of 64 warps (4 programs a multiprocessor), limited by registers\n"), "{told}");
        let told = text(|out| gpu("sm_80", &output, Some("no ptxas"), out));
        assert!(told.contains("100 bytes of PTX") && told.contains("unknown: no ptxas\n"), "{told}");
        assert!(!told.contains("occupancy"), "{told}");
    }
}
