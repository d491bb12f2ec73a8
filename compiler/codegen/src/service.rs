//! One request of the compiler's protocol to one response. Nothing that a request holds ends the process, but for what
//! LLVM itself dies of.

use crate::{
    emit::{self, CpuTarget, GpuTarget, Mlir, Stage},
    lower::{self, cpu},
    nvidia::{self, ptxas, sass},
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tegula_ir::{
    Kernel, Loc,
    gpu::{self, Layouts, Pressure, occupancy::Limits},
    passes,
    protocol::{Emit, Meta, Request, Response},
};

/// Answers a request.
pub fn answer(request: &Request) -> Response {
    let result = catch_unwind(AssertUnwindSafe(|| compile(request)));
    match result {
        Ok(Ok((bytes, meta))) => Response::Ok { bytes, meta },
        Ok(Err(f)) => Response::Err { stage: f.stage.into(), message: f.message, loc: f.loc },
        Err(panic) => {
            let text =
                panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            let message = format!("a defect of the compiler: {}", text.unwrap_or_default());
            Response::Err { stage: "lower".into(), message, loc: None }
        }
    }
}

/// A stage's failure.
struct Failure {
    stage: &'static str,
    message: String,
    loc: Option<Loc>,
}

fn at(stage: &'static str, message: impl ToString) -> Failure {
    Failure { stage, message: message.to_string(), loc: None }
}

/// Reads `cpu:LEVEL[+FEATURE]…`; `vnni` is the form of it that belongs to the level.
fn target(text: &str) -> Result<CpuTarget, Failure> {
    let wrong = || {
        at(
            "lower",
            format!(
                "unknown target `{text}`: expected `cpu:` and a level, as in `cpu:x86-64-v3`, or a GPU architecture, as `sm_90a`"
            ),
        )
    };
    let mut parts = text.strip_prefix("cpu:").ok_or_else(wrong)?.split('+');
    let mut name = parts.next().unwrap_or_default().to_string();
    for feature in parts {
        let feature = match (feature, name.starts_with("x86-64-v4")) {
            ("vnni", true) => "avx512vnni",
            ("vnni", false) => "avxvnni",
            (f, _) => f,
        };
        name.push_str(",+");
        name.push_str(feature);
    }
    CpuTarget::parse(&name).map_err(|e| at("lower", e))
}

fn compile(request: &Request) -> Result<(Vec<u8>, Meta), Failure> {
    let kernel = || {
        let mut kernel = Kernel::parse(&request.kernel).map_err(|e| at("parse", e))?;
        verify(&kernel, "verify")?;
        passes::optimise(&mut kernel);
        verify(&kernel, "passes")?;
        Ok(kernel)
    };
    if request.target.starts_with("sm_") {
        return compile_gpu(request, &GpuTarget::parse(&request.target).map_err(|e| at("lower", e))?, kernel()?);
    }
    compile_cpu(request, &target(&request.target)?, kernel()?)
}

fn verify(k: &Kernel, stage: &'static str) -> Result<(), Failure> {
    k.verify().map_err(|e| Failure { stage, message: e.to_string(), loc: Some(e.loc) })
}

fn compile_cpu(request: &Request, target: &CpuTarget, kernel: Kernel) -> Result<(Vec<u8>, Meta), Failure> {
    let stage = match request.emit {
        Emit::Tile => return Ok((kernel.text().into_bytes(), Meta::default())),
        Emit::Layouts => return Err(at("layouts", "a CPU kernel has no layouts: they are for GPU targets")),
        Emit::Mlir => Some(Stage::Mlir),
        Emit::Llvm => Some(Stage::LlvmOptimised),
        Emit::Asm => Some(Stage::Asm),
        Emit::Artifact => None,
        Emit::Cubin | Emit::Sass => {
            return Err(at("ptxas", "a CPU kernel has no GPU machine code: that is for GPU targets"));
        }
    };
    let mlir = Mlir::new();
    let lowered = cpu::lower(mlir.context(), &kernel, target, request.checked).map_err(unlowered)?;
    let (mut module, meta) = (lowered.module, lowered.meta);
    let stages: Vec<Stage> = stage.into_iter().collect();
    let (code, mut texts) = emit::compile(&mlir, &mut module, target, &stages).map_err(unemitted)?;
    Ok((texts.pop().map_or(code, String::into_bytes), meta))
}

fn compile_gpu(request: &Request, target: &GpuTarget, mut kernel: Kernel) -> Result<(Vec<u8>, Meta), Failure> {
    if request.emit == Emit::Tile {
        return Ok((kernel.text().into_bytes(), Meta::default()));
    }
    gpu::assign(&mut kernel).map_err(|e| Failure { stage: "layouts", message: e.to_string(), loc: Some(e.loc) })?;
    let stage = match request.emit {
        Emit::Tile | Emit::Layouts => return Ok((kernel.text().into_bytes(), Meta::default())),
        Emit::Mlir => Some(Stage::Mlir),
        Emit::Llvm => Some(Stage::LlvmOptimised),
        Emit::Asm | Emit::Artifact | Emit::Cubin | Emit::Sass => None,
    };
    let mlir = Mlir::new();
    let lowered = lower::gpu::lower(mlir.context(), &kernel, target, request.checked).map_err(unlowered)?;
    let (mut module, mut meta) = (lowered.module, lowered.meta);
    let stages: Vec<Stage> = stage.into_iter().collect();
    let (ptx, mut texts) = emit::nvptx::compile(&mlir, &mut module, target, &stages).map_err(unemitted)?;
    if !matches!(request.emit, Emit::Cubin | Emit::Sass) {
        meta.remarks.extend(lowered.estimate);
    }
    let bytes = match request.emit {
        Emit::Cubin => assemble(&ptx, target, &kernel, &mut meta)?,
        Emit::Sass => {
            sass::disassemble(&assemble(&ptx, target, &kernel, &mut meta)?).map_err(unassembled)?.into_bytes()
        }
        _ => texts.pop().unwrap_or(ptx).into_bytes(),
    };
    Ok((bytes, meta))
}

/// Assembles a kernel's PTX; `meta` learns what it needs.
fn assemble(ptx: &str, target: &GpuTarget, kernel: &Kernel, meta: &mut Meta) -> Result<Vec<u8>, Failure> {
    let assembled = ptxas::assemble(ptx, target.arch).map_err(unassembled)?;
    let usage = assembled.usage;
    (meta.registers, meta.spill_bytes, meta.stack_bytes) = (usage.registers, usage.spill_bytes, usage.stack_bytes);
    meta.remarks.extend(assembled.advice);
    let pressure = Layouts::of(kernel).ok().map(|layouts| Pressure::of(kernel, &layouts));
    if usage.spill_bytes > 0 {
        meta.remarks.push(spill(usage, meta.warps, pressure.as_ref()));
    }
    // ptxas keeps to the launch's number of threads; this is for what it does not look at.
    let fits = Limits::of(target.arch).map(|l| l.occupancy(meta.warps, usage.registers, meta.shared_bytes as usize));
    match fits {
        Some(Err(excess)) => {
            let loc = pressure.map(|p| p.loc).filter(|l| !l.is_unknown());
            Err(Failure { stage: "ptxas", message: format!("the kernel cannot be launched: {excess}"), loc })
        }
        _ => Ok(assembled.cubin),
    }
}

/// What to say of registers that went to memory.
fn spill(usage: ptxas::Usage, warps: u32, pressure: Option<&Pressure>) -> String {
    let most = pressure
        .map(|p| format!("; its tiles need most at `{}` ({}), about {} registers a thread", p.op, p.loc, p.registers));
    format!(
        "{} bytes of registers spill to local memory ({} registers are used){}: smaller tiles, or more warps than {warps}, \
         need fewer",
        usage.spill_bytes,
        usage.registers,
        most.unwrap_or_default()
    )
}

fn unassembled(e: nvidia::Error) -> Failure {
    Failure { stage: e.tool, message: e.message, loc: e.loc }
}

fn unlowered(e: lower::cpu::Error) -> Failure {
    Failure { stage: "lower", message: e.message, loc: e.loc }
}

fn unemitted(e: emit::Error) -> Failure {
    let stage = match e {
        emit::Error::Mlir { .. } => "mlir",
        emit::Error::Llvm { .. } => "llvm",
        emit::Error::Target(_) => "lower",
        emit::Error::Linker(_) | emit::Error::Link(_) => "link",
    };
    at(stage, e)
}
