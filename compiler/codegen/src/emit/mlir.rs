//! MLIR: a context that holds only the dialects a lowering uses, pass pipelines, and the step to LLVM IR.

use super::{Diagnostic, Error};
use melior::{
    Context,
    diagnostic::DiagnosticSeverity,
    dialect::DialectRegistry,
    ir::{Module, operation::OperationLike},
    pass::PassManager,
    utility::{parse_pass_pipeline, register_all_llvm_translations, register_all_passes},
};
use std::sync::{Arc, Mutex, PoisonError};

/// What turns a CPU lowering's module into MLIR's `llvm` dialect.
///
/// Vectors of rank above one are unrolled; memrefs become bare pointers at function borders; source locations become
/// line tables, so that `perf annotate` and gdb show the kernel's lines.
pub const CPU_PIPELINE: &str = "builtin.module(\
    func.func(convert-vector-to-scf{full-unroll=true target-rank=1}),\
    convert-scf-to-cf,\
    convert-vector-to-llvm{vector-contract-lowering=outerproduct},\
    expand-strided-metadata,\
    lower-affine,\
    convert-math-to-llvm,\
    convert-index-to-llvm,\
    finalize-memref-to-llvm,\
    convert-arith-to-llvm,\
    convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},\
    convert-cf-to-llvm,\
    convert-ub-to-llvm,\
    reconcile-unrealized-casts,\
    ensure-debug-info-scope-on-llvm-func{emission-kind=LineTablesOnly})";

/// An MLIR context, and what it has said that was not yet asked for.
///
/// Single threaded: parallel compilation is several workers. Making one takes some milliseconds; it serves any number
/// of modules.
pub struct Mlir {
    context: Context,
    said: Arc<Mutex<Vec<Diagnostic>>>,
}

impl Default for Mlir {
    fn default() -> Self {
        Self::new()
    }
}

impl Mlir {
    /// A context with the dialects arith, cf, func, index, llvm, math, memref, nvvm, scf, ub and vector loaded. Passes load
    /// what else they need.
    pub fn new() -> Self {
        register_all_passes();
        let registry = DialectRegistry::new();
        let context = Context::new_with_registry(&registry, false);
        // SAFETY: each handle is a static object of the MLIR library, and the context is alive.
        unsafe {
            for handle in [
                mlir_sys::mlirGetDialectHandle__arith__(),
                mlir_sys::mlirGetDialectHandle__cf__(),
                mlir_sys::mlirGetDialectHandle__func__(),
                mlir_sys::mlirGetDialectHandle__index__(),
                mlir_sys::mlirGetDialectHandle__llvm__(),
                mlir_sys::mlirGetDialectHandle__math__(),
                mlir_sys::mlirGetDialectHandle__memref__(),
                mlir_sys::mlirGetDialectHandle__nvvm__(),
                mlir_sys::mlirGetDialectHandle__scf__(),
                mlir_sys::mlirGetDialectHandle__ub__(),
                mlir_sys::mlirGetDialectHandle__vector__(),
            ] {
                mlir_sys::mlirDialectHandleLoadDialect(handle, context.to_raw());
            }
        }
        register_all_llvm_translations(&context);

        let said = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&said);
        // Answering `true` says that the message is dealt with, so that MLIR does not print it.
        context.attach_diagnostic_handler(move |diagnostic| {
            if matches!(diagnostic.severity(), DiagnosticSeverity::Error | DiagnosticSeverity::Warning) {
                log.lock().unwrap_or_else(PoisonError::into_inner).push(convert(&diagnostic));
            }
            true
        });
        Self { context, said }
    }

    /// The context that melior's builders want.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Reads a module from MLIR text; for tests and tools.
    ///
    /// # Errors
    /// What the parser or the verifier found wrong.
    pub fn parse(&self, text: &str) -> Result<Module<'_>, Error> {
        self.said(); // whatever was left
        let module = if text.contains('\0') { None } else { Module::parse(&self.context, text) };
        module.ok_or_else(|| self.error("parsing MLIR"))
    }

    /// Checks a module that builders made.
    ///
    /// # Errors
    /// What the verifier found wrong.
    pub fn verify(&self, module: &Module) -> Result<(), Error> {
        self.said();
        if module.as_operation().verify() { Ok(()) } else { Err(self.error("verifying MLIR")) }
    }

    /// Runs a pass pipeline, written as `mlir-opt` takes it (`builtin.module(canonicalize,cse)`).
    ///
    /// # Errors
    /// The pipeline does not parse, or a pass failed; the module is then of no more use.
    pub fn run(&self, module: &mut Module, pipeline: &str) -> Result<(), Error> {
        self.said();
        let manager = PassManager::new(&self.context);
        parse_pass_pipeline(manager.as_operation_pass_manager(), pipeline).map_err(|error| Error::Mlir {
            stage: "reading an MLIR pass pipeline",
            diagnostics: vec![Diagnostic { place: String::new(), message: error.to_string() }],
        })?;
        manager.run(module).map_err(|_| self.error("an MLIR pass"))
    }

    /// The LLVM IR of a module in the `llvm` dialect, made in `llvm`.
    ///
    /// # Errors
    /// An operation that is not in the `llvm` dialect, or whose translation failed.
    pub fn translate<'l>(
        &self,
        module: &Module,
        llvm: &'l inkwell::context::Context,
    ) -> Result<inkwell::module::Module<'l>, Error> {
        use inkwell::context::AsContextRef;
        self.said();
        // SAFETY: both operands are alive. mlir-sys and llvm-sys bind one and the same libLLVM, so its context and
        // module pointers pass between them; the module returned is ours and lives in `llvm`.
        unsafe {
            let raw =
                mlir_sys::mlirTranslateModuleToLLVMIR(module.as_operation().to_raw(), llvm.as_ctx_ref().cast::<_>());
            if raw.is_null() {
                return Err(self.error("translating MLIR to LLVM IR"));
            }
            Ok(inkwell::module::Module::new(raw.cast()))
        }
    }

    fn said(&self) -> Vec<Diagnostic> {
        std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn error(&self, stage: &'static str) -> Error {
        Error::Mlir { stage, diagnostics: self.said() }
    }
}

/// A diagnostic with its notes; MLIR prints an unknown place as `loc(unknown)`, a known one as `loc("file":1:2)`.
fn convert(diagnostic: &melior::diagnostic::Diagnostic) -> Diagnostic {
    let mut message = diagnostic.to_string();
    for note in (0..diagnostic.note_count()).filter_map(|i| diagnostic.note(i).ok()) {
        message.push_str("\nnote: ");
        message.push_str(&note.to_string());
    }
    let place = diagnostic.location().to_string();
    let place = place.strip_prefix("loc(").and_then(|p| p.strip_suffix(')')).unwrap_or(&place);
    Diagnostic { place: if place == "unknown" { String::new() } else { place.to_string() }, message }
}
