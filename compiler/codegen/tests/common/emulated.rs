//! Compiles kernels to PTX and runs it on the emulator, strictly.

use tegula_codegen::{emit::GpuTarget, service};
use tegula_ir::{
    Kernel, abi,
    layout::Layout,
    protocol::{Emit, Meta, Request, Response},
    testing::{Arg, random::Config},
};
use tegula_ptx::{Completion, Counters, Emulator, Grid, Module, Options, Param};

/// What code is made for.
pub const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

/// Random programs with packed weights as GPUs read them.
pub const CONFIG: Config = Config { statements: 40, allow: |_| true, elems: |_| true, layouts: &[Layout::Gguf] };

/// A report: site, program, value.
pub type Report = (u64, u64, u64);

/// Compiles a kernel.
///
/// # Errors
/// The stage and what it said.
pub fn compile(text: &str, target: &str, emit: Emit, checked: bool) -> Result<(String, Meta), String> {
    match service::answer(&Request { kernel: text.into(), target: target.into(), emit, checked }) {
        Response::Ok { bytes, meta } => Ok((String::from_utf8(bytes).map_err(|e| e.to_string())?, meta)),
        Response::Err { stage, message, loc } => {
            let brief: String = message.chars().take(600).collect();
            Err(format!("{stage} failed: {brief} at {loc:?}"))
        }
    }
}

/// PTX on an emulated GPU.
pub struct Code<'a> {
    pub ptx: &'a str,
    pub meta: &'a Meta,
    pub target: &'a str,
    pub completion: Completion,
}

/// Runs the whole grid on the emulator; gives what was reported, and counters.
///
/// # Errors
/// A fault of the emulator.
pub fn launch(
    code: &Code<'_>,
    kernel: &Kernel,
    args: &mut [Arg],
    grid: [u32; 3],
) -> Result<(Vec<Report>, Counters), String> {
    let Code { ptx, meta, target, completion } = *code;
    let module = Module::parse(ptx, target).map_err(|e| format!("{e}\n{}", numbered(ptx)))?;
    let max_shared = GpuTarget::parse(target).map_err(|e| e.to_string())?.shared_bytes;
    let options = Options { threads: 1, limit: 200_000_000, completion, max_shared, ..Options::default() };
    let mut gpu = Emulator::new(options);
    if grid.contains(&0) {
        // A driver refuses an empty grid, and nothing is to be done.
        return Ok((vec![], Counters::default()));
    }
    let (mut params, mut places) = (vec![], vec![]);
    for (arg, name) in args.iter().zip(&kernel.params) {
        match arg {
            Arg::View(b) => {
                let at = gpu.memory.alloc_with(name, b.bytes());
                places.push(Some(at));
                params.push(Param::U64(at));
                params.extend(b.extents.iter().chain(&b.strides).map(|v| Param::I64(*v)));
            }
            Arg::Scalar(s) => {
                places.push(None);
                params.push(Param::U64(s.bits));
            }
            Arg::Packed(bytes, k, n, ..) => {
                places.push(None);
                params.push(Param::U64(gpu.memory.alloc_with(name, bytes)));
                params.extend([*k, *n].map(|v| Param::U64(v as u64)));
            }
        }
    }
    const RECORDS: usize = 4096;
    let mut buffer = vec![0; abi::gpu::RECORDS + RECORDS * abi::gpu::RECORD];
    buffer[abi::gpu::CAPACITY..][..4].copy_from_slice(&(RECORDS as u32).to_le_bytes());
    let reports = gpu.memory.alloc_with("reports", &buffer);
    params.push(Param::U64(reports));
    let sizes =
        Grid { grid, block: [meta.warps * 32, 1, 1], cluster: None, dynamic_shared: meta.shared_bytes as usize };
    let report = gpu.launch(&module, abi::gpu::ENTRY, sizes, &params).map_err(|f| {
        // `TEGULA_DUMP=FILE` keeps the code that failed.
        if let Some(file) = std::env::var_os("TEGULA_DUMP") {
            std::fs::write(file, format!("{ptx}\n// {}", kernel.text().replace('\n', "\n// ")))
                .expect("TEGULA_DUMP can be written");
        }
        let near = ptx.lines().enumerate().skip((f.line as usize).saturating_sub(12)).take(14);
        let near: Vec<String> = near.map(|(i, l)| format!("{:5} {l}", i + 1)).collect();
        format!("{f}\n{}", near.join("\n"))
    })?;
    for (arg, place) in args.iter_mut().zip(places) {
        if let (Arg::View(b), Some(at)) = (arg, place) {
            let len = b.bytes().len();
            b.bytes_mut().copy_from_slice(&gpu.memory.read_vec(at, len).map_err(|e| e.to_string())?);
        }
    }
    let buffer = gpu.memory.read_vec(reports, buffer.len()).map_err(|e| e.to_string())?;
    let word = |at: usize| u64::from_le_bytes(buffer[at..at + 8].try_into().expect("eight bytes"));
    let count = (word(0) as u32 as usize).min(RECORDS);
    let record = |i: usize| {
        let at = abi::gpu::RECORDS + i * abi::gpu::RECORD;
        (word(at), word(at + 8), word(at + 16))
    };
    Ok(((0..count).map(record).collect(), report.counters))
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(i, l)| format!("{:5} {l}\n", i + 1)).collect()
}
