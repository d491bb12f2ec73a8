//! LLVM: optimisation and machine code for a named instruction set.

use super::{Diagnostic, Error};
use inkwell::{
    OptimizationLevel,
    module::Module,
    passes::PassBuilderOptions,
    targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple},
};
use llvm_sys::{LLVMDiagnosticSeverity, core, prelude::LLVMDiagnosticInfoRef};
use std::{
    cell::Cell,
    ffi::{CStr, c_void},
    fmt,
    str::FromStr,
};

/// The instruction sets code is made for. LLVM takes unknown names with a remark on stderr, so the list is ours.
const LEVELS: [&str; 4] = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"];

/// What may be added to (or with `-` taken from) a level.
const FEATURES: [&str; 12] = [
    "avxvnni",
    "avxvnniint8",
    "avxifma",
    "avx512vnni",
    "avx512bf16",
    "avx512fp16",
    "avx512vbmi",
    "avx512vbmi2",
    "avx512ifma",
    "amx-tile",
    "amx-int8",
    "amx-bf16",
];

/// An x86-64 instruction set: a level (`x86-64-v3` is AVX2 with FMA and F16C, `x86-64-v4` AVX-512) and features beyond it.
///
/// As text, as in kernel keys and `--target`: `x86-64-v3`, `x86-64-v3,+avxvnni`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CpuTarget {
    level: &'static str,
    features: Vec<String>,
}

impl CpuTarget {
    /// Reads `LEVEL[,+FEATURE|,-FEATURE]…`. The order of features is kept out of the value.
    ///
    /// # Errors
    /// An unknown level or feature; the message lists the known ones.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split(',').map(str::trim);
        let level = parts.next().unwrap_or_default();
        let level = LEVELS.into_iter().find(|l| *l == level).ok_or_else(|| {
            Error::Target(format!("unknown CPU target `{level}`: it starts with one of {}", LEVELS.join(", ")))
        })?;
        let mut features = Vec::new();
        for part in parts {
            let known = part.strip_prefix(['+', '-']).is_some_and(|name| FEATURES.contains(&name));
            if !known {
                let known = FEATURES.join(", ");
                return Err(Error::Target(format!(
                    "unknown CPU feature `{part}` in `{text}`: write `+` or `-` and one of {known}"
                )));
            }
            features.push(part.to_string());
        }
        features.sort();
        features.dedup();
        Ok(Self { level, features })
    }

    /// The level, `x86-64-v3` for example.
    pub fn level(&self) -> &str {
        self.level
    }

    /// Whether `name` (without sign) was added.
    pub fn has(&self, name: &str) -> bool {
        self.features.iter().any(|f| f.strip_prefix('+') == Some(name))
    }
}

impl fmt::Display for CpuTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level)?;
        self.features.iter().try_for_each(|feature| write!(f, ",{feature}"))
    }
}

impl FromStr for CpuTarget {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Instructions of a function above which its module is optimised in linear time only.
///
/// Several passes of `O3` and LLVM's register allocator take time and memory with the square of a function's blocks or
/// instructions: beyond this it is tens of seconds and gigabytes. Kernels made of loops have some thousands; those that
/// have more are unrolled by thousands, and gain little.
const MANY_INSTRUCTIONS: usize = 12_000;

/// Passes of linear time.
const LEAN: &str = "function(mem2reg,early-cse,simplifycfg,sink)";

/// LLVM's code generator for one [`CpuTarget`]: position independent, at the highest level of optimisation (but for
/// functions of very many instructions). It never contracts `a * b + c` and never flushes subnormal numbers: a lowering that
/// wants `fma` says so.
pub struct Machine {
    machine: TargetMachine,
    /// The same for functions of many instructions: without optimisation.
    plain: TargetMachine,
    /// Whether the module at hand, when it came to be optimised, was of that kind.
    lean: Cell<bool>,
    triple: TargetTriple,
}

impl Machine {
    /// A code generator for `target`. Any target can be made on any host.
    ///
    /// # Errors
    /// LLVM was built without x86.
    pub fn new(target: &CpuTarget) -> Result<Self, Error> {
        Target::initialize_x86(&InitializationConfig::default());
        let triple = TargetTriple::create("x86_64-unknown-linux-gnu");
        let missing = |why: String| Error::Target(format!("LLVM cannot make code for x86-64: {why}"));
        let x86 = Target::from_triple(&triple).map_err(|e| missing(e.to_string()))?;
        let machine = |level| {
            let features = target.features.join(",");
            x86.create_target_machine(&triple, target.level, &features, level, RelocMode::PIC, CodeModel::Default)
                .ok_or_else(|| missing("it made no target machine".into()))
        };
        let (plain, machine) = (machine(OptimizationLevel::None)?, machine(OptimizationLevel::Aggressive)?);
        Ok(Self { machine, plain, lean: Cell::new(false), triple })
    }

    /// Gives a module this target's triple and data layout. Needed once, before anything else here.
    pub fn prepare(&self, module: &Module) {
        module.set_triple(&self.triple);
        module.set_data_layout(&self.machine.get_target_data().get_data_layout());
    }

    /// Whether a module has a function of so many instructions that it is not optimised as others are.
    fn is_lean(module: &Module) -> bool {
        module.get_functions().any(|f| {
            f.get_basic_block_iter().flat_map(|block| block.get_instructions()).nth(MANY_INSTRUCTIONS).is_some()
        })
    }

    /// Verifies the module and runs LLVM's `O3`, or on functions of very many instructions a few quick passes.
    ///
    /// # Errors
    /// Invalid LLVM IR, or what a pass reported.
    pub fn optimise(&self, module: &Module) -> Result<(), Error> {
        reported("optimising LLVM IR", module, || {
            module.verify().map_err(|e| e.to_string())?;
            self.lean.set(Self::is_lean(module));
            let passes = if self.lean.get() { LEAN } else { "default<O3>" };
            module.run_passes(passes, &self.machine, PassBuilderOptions::create()).map_err(|e| e.to_string())
        })
    }

    /// The module as assembly text.
    ///
    /// # Errors
    /// What the code generator reported.
    pub fn assembly(&self, module: &Module) -> Result<String, Error> {
        let bytes = self.write(module, FileType::Assembly)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The module as a relocatable ELF object.
    ///
    /// # Errors
    /// What the code generator reported.
    pub fn object(&self, module: &Module) -> Result<Vec<u8>, Error> {
        self.write(module, FileType::Object)
    }

    fn write(&self, module: &Module, kind: FileType) -> Result<Vec<u8>, Error> {
        // Code generation changes the module it is given (debug records, for one): each output starts from a copy, so
        // that the object does not depend on which texts were asked for.
        let module = module.clone();
        let machine = if self.lean.get() { &self.plain } else { &self.machine };
        reported("generating machine code", &module, || {
            let buffer = machine.write_to_memory_buffer(&module, kind).map_err(|e| e.to_string())?;
            Ok(buffer.as_slice().to_vec())
        })
    }
}

/// Runs `step` with LLVM's diagnostics of the module's context collected (LLVM's own handler prints, and ends the
/// process at an error).
pub(super) fn reported<T>(
    stage: &'static str,
    module: &Module,
    step: impl FnOnce() -> Result<T, String>,
) -> Result<T, Error> {
    extern "C" fn collect(info: LLVMDiagnosticInfoRef, into: *mut c_void) {
        // SAFETY: LLVM calls this during `step` only, with the pointer set below and a live diagnostic.
        unsafe {
            if !matches!(core::LLVMGetDiagInfoSeverity(info), LLVMDiagnosticSeverity::LLVMDSError) {
                return;
            }
            let text = core::LLVMGetDiagInfoDescription(info);
            let message = CStr::from_ptr(text).to_string_lossy().trim_end().to_string();
            core::LLVMDisposeMessage(text);
            (*into.cast::<Vec<Diagnostic>>()).push(Diagnostic { place: String::new(), message });
        }
    }
    let mut diagnostics: Vec<Diagnostic> = Vec::new();
    // SAFETY: the module and so its context are alive; the handler is taken out again before `diagnostics` goes.
    let context = unsafe { core::LLVMGetModuleContext(module.as_mut_ptr()) };
    unsafe { core::LLVMContextSetDiagnosticHandler(context, Some(collect), (&raw mut diagnostics).cast()) };
    let result = step();
    unsafe { core::LLVMContextSetDiagnosticHandler(context, None, std::ptr::null_mut()) };
    match result {
        Ok(value) if diagnostics.is_empty() => Ok(value),
        Ok(_) => Err(Error::Llvm { stage, diagnostics }),
        Err(message) => {
            diagnostics.push(Diagnostic { place: String::new(), message });
            Err(Error::Llvm { stage, diagnostics })
        }
    }
}
