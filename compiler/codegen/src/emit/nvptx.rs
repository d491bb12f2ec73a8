//! LLVM for NVIDIA GPUs: from an MLIR module with kernels to PTX text.

use super::{Error, Mlir, Stage, llvm::reported};
use inkwell::{
    OptimizationLevel,
    module::Module,
    passes::PassBuilderOptions,
    targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple},
};
use std::{ffi::CStr, fmt, sync::Once};
use tegula_ir::gpu::occupancy::{SM_80, SM_89, SM_90A};

/// What turns a GPU lowering's module into MLIR's `llvm` dialect.
///
/// Control flow becomes branches; arithmetic LLVM's own; source locations become `.loc` lines, so that a fault or a
/// profile names the kernel's lines. No more than these: with whole line tables LLVM writes `.target sm_90a, debug`, and
/// ptxas does not optimise what is so marked.
pub const GPU_PIPELINE: &str = "builtin.module(\
    convert-scf-to-cf,\
    convert-vector-to-llvm,\
    convert-math-to-llvm,\
    convert-arith-to-llvm,\
    convert-func-to-llvm,\
    convert-cf-to-llvm,\
    convert-ub-to-llvm,\
    reconcile-unrealized-casts,\
    ensure-debug-info-scope-on-llvm-func{emission-kind=DebugDirectivesOnly})";

/// A GPU architecture that code is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GpuTarget {
    /// Its name, `sm_90a`.
    pub arch: &'static str,
    /// The one PTX version that is asked of LLVM, which dies of instructions that a version lacks. All are below what
    /// drivers of CUDA 13 take.
    ptx: &'static str,
    /// Shared memory that a block may have, in bytes.
    pub shared_bytes: usize,
}

/// LLVM's switches for this target, which are global to the process:
///
/// - shared memory has 32-bit addresses;
/// - products that widen are multiply-adds where they can be.
const LLVM_SWITCHES: [&CStr; 2] = [c"-nvptx-short-ptr", c"-nvptx-mad-wide-opt"];

/// The architectures.
const TARGETS: [GpuTarget; 3] = [
    GpuTarget { arch: "sm_80", ptx: "+ptx80", shared_bytes: SM_80.shared_of_block },
    GpuTarget { arch: "sm_89", ptx: "+ptx84", shared_bytes: SM_89.shared_of_block },
    GpuTarget { arch: "sm_90a", ptx: "+ptx86", shared_bytes: SM_90A.shared_of_block },
];

impl GpuTarget {
    /// The target of that name.
    ///
    /// # Errors
    /// An unknown architecture; the message lists the known ones.
    pub fn parse(text: &str) -> Result<Self, Error> {
        TARGETS.into_iter().find(|t| t.arch == text).ok_or_else(|| {
            let known = TARGETS.map(|t| t.arch).join(", ");
            Error::Target(format!("unknown GPU target `{text}`: it is one of {known}"))
        })
    }
}

impl fmt::Display for GpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.arch)
    }
}

/// LLVM's code generator for one [`GpuTarget`]. It never contracts `a * b + c`, never flushes subnormal numbers, divides
/// and takes square roots to the nearest: what the language says.
struct Machine {
    machine: TargetMachine,
    triple: TargetTriple,
}

impl Machine {
    fn new(target: &GpuTarget) -> Result<Self, Error> {
        static SWITCHES: Once = Once::new();
        SWITCHES.call_once(|| {
            // The first is the program's name.
            let arguments = [c"tegulac"].into_iter().chain(LLVM_SWITCHES).map(CStr::as_ptr).collect::<Vec<_>>();
            // SAFETY: as many strings as is said, each ending in a zero; LLVM copies what it keeps. It knows the switches
            // of its own version, so that it does not end the process.
            unsafe {
                llvm_sys::support::LLVMParseCommandLineOptions(
                    arguments.len() as i32,
                    arguments.as_ptr(),
                    std::ptr::null(),
                );
            }
        });
        Target::initialize_nvptx(&InitializationConfig::default());
        let triple = TargetTriple::create("nvptx64-nvidia-cuda");
        let missing = |why: String| Error::Target(format!("LLVM cannot make code for NVIDIA GPUs: {why}"));
        let machine = Target::from_triple(&triple)
            .map_err(|e| missing(e.to_string()))?
            .create_target_machine(
                &triple,
                target.arch,
                target.ptx,
                OptimizationLevel::Aggressive,
                RelocMode::Default,
                CodeModel::Default,
            )
            .ok_or_else(|| missing("it made no target machine".into()))?;
        Ok(Self { machine, triple })
    }

    fn optimise(&self, module: &Module) -> Result<(), Error> {
        module.set_triple(&self.triple);
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
        reported("optimising LLVM IR", module, || {
            module.verify().map_err(|e| e.to_string())?;
            module.run_passes("default<O3>", &self.machine, PassBuilderOptions::create()).map_err(|e| e.to_string())
        })
    }

    fn ptx(&self, module: &Module) -> Result<String, Error> {
        reported("generating PTX", module, || {
            let buffer = self.machine.write_to_memory_buffer(module, FileType::Assembly).map_err(|e| e.to_string())?;
            Ok(String::from_utf8_lossy(buffer.as_slice()).trim_end_matches('\0').to_string())
        })
    }
}

/// Compiles `module` for `target`: PTX, and the texts of the stages asked for, in that order. Its functions with the
/// attribute `nvvm.kernel` are the entries.
///
/// Leaves `module` in the `llvm` dialect.
///
/// # Errors
/// Whatever MLIR's verifier, a pass or LLVM found wrong, naming the stage.
pub fn compile(
    mlir: &Mlir,
    module: &mut melior::ir::Module,
    target: &GpuTarget,
    stages: &[Stage],
) -> Result<(String, Vec<String>), Error> {
    let (machine, context) = (Machine::new(target)?, inkwell::context::Context::create());
    let mut texts = vec![String::new(); stages.len()];
    let mut keep = |stage, text: &dyn Fn() -> String| {
        for (slot, _) in texts.iter_mut().zip(stages).filter(|(_, s)| **s == stage) {
            *slot = text();
        }
    };
    mlir.verify(module)?;
    keep(Stage::Mlir, &|| module.as_operation().to_string());
    mlir.run(module, GPU_PIPELINE)?;
    keep(Stage::MlirLlvm, &|| module.as_operation().to_string());
    let code = mlir.translate(module, &context)?;
    keep(Stage::Llvm, &|| code.print_to_string().to_string());
    machine.optimise(&code)?;
    keep(Stage::LlvmOptimised, &|| code.print_to_string().to_string());
    let ptx = machine.ptx(&code)?;
    keep(Stage::Asm, &|| ptx.clone());
    Ok((ptx, texts))
}
