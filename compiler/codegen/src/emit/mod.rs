//! From an MLIR module to machine code: the half of the compiler below lowering.
//!
//! ```text
//!   lower/cpu ──► MLIR (func arith math scf cf vector memref llvm)      mlir.rs   Mlir::new, Mlir::verify
//!                  │  CPU_PIPELINE                                                Mlir::run
//!                  ▼
//!                 llvm dialect ──► LLVM IR                                        Mlir::translate
//!                                   │  O3 for a named instruction set   llvm.rs   Machine::optimise
//!                                   ▼
//!                                  assembly text, object                          Machine::assembly, Machine::object
//!                                   │  lld                              link.rs   link::shared_object
//!                                   ▼
//!                                  shared object, for dlopen
//! ```
//!
//! GPU code takes the same way with [`GPU_PIPELINE`] and ends as PTX text: see [`nvptx`].
//!
//! How a lowering uses it (`tests/emit.rs` is the whole example):
//!
//! ```no_run
//! use tegula_codegen::emit::{self, CpuTarget, Mlir, Stage};
//! # fn main() -> Result<(), emit::Error> {
//! let mlir = Mlir::new();
//! let mut module = mlir.parse("func.func @f(%x: f32) -> f32 { return %x : f32 }")?; // or built with melior's builders
//! let target = CpuTarget::parse("x86-64-v3")?;
//! let (code, text) = emit::compile(&mlir, &mut module, &target, &[Stage::Asm])?;    // code: bytes of a shared object
//! println!("{}", text[0]);
//! # Ok(()) }
//! ```
//!
//! For a fused multiply-add that must be one (`fma` in the language, `dot`), build `math.fma`: `vector.fma` becomes LLVM's
//! `fmuladd`, which may also be two roundings.
//!
//! Nothing here prints: every diagnostic of MLIR, LLVM and lld becomes an [`Error`]. What LLVM does not report but dies
//! of (an instruction it cannot select) ends the process, which is why this code runs in `tegulac` and not in the user's
//! program.

mod error;
pub mod link;
mod llvm;
mod mlir;
pub mod nvptx;

pub use error::{Diagnostic, Error};
pub use llvm::{CpuTarget, Machine};
pub use mlir::{CPU_PIPELINE, Mlir};
pub use nvptx::{GPU_PIPELINE, GpuTarget};

/// The texts between MLIR and machine code that can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The module as the lowering built it.
    Mlir,
    /// The same in MLIR's `llvm` dialect, after [`CPU_PIPELINE`].
    MlirLlvm,
    /// LLVM IR before LLVM's passes.
    Llvm,
    /// LLVM IR after them.
    LlvmOptimised,
    /// Assembly.
    Asm,
}

/// Compiles `module` for `target`: the bytes of a shared object, and the texts of the stages asked for, in that order.
/// The functions of the module that are not private are the symbols of the shared object; memrefs among their
/// parameters are passed as bare pointers.
///
/// Leaves `module` in the `llvm` dialect.
///
/// # Errors
/// Whatever MLIR's verifier, a pass, LLVM or lld found wrong, naming the stage.
pub fn compile(
    mlir: &Mlir,
    module: &mut melior::ir::Module,
    target: &CpuTarget,
    stages: &[Stage],
) -> Result<(Vec<u8>, Vec<String>), Error> {
    let (machine, context) = (Machine::new(target)?, inkwell::context::Context::create());
    let mut texts = vec![String::new(); stages.len()];
    let mut keep = |stage, text: &dyn Fn() -> Result<String, Error>| -> Result<(), Error> {
        for (slot, _) in texts.iter_mut().zip(stages).filter(|(_, s)| **s == stage) {
            *slot = text()?;
        }
        Ok(())
    };

    mlir.verify(module)?;
    keep(Stage::Mlir, &|| Ok(module.as_operation().to_string()))?;
    mlir.run(module, CPU_PIPELINE)?;
    keep(Stage::MlirLlvm, &|| Ok(module.as_operation().to_string()))?;
    let code = mlir.translate(module, &context)?;
    machine.prepare(&code);
    keep(Stage::Llvm, &|| Ok(code.print_to_string().to_string()))?;
    machine.optimise(&code)?;
    keep(Stage::LlvmOptimised, &|| Ok(code.print_to_string().to_string()))?;
    keep(Stage::Asm, &|| machine.assembly(&code))?;
    Ok((link::shared_object(&machine.object(&code)?)?, texts))
}
