//! What NVIDIA's assembler makes of every kernel of the library, in every setting, and of the examples: machine code
//! without spills. Without it (`./x setup --nvidia` gets it) this is counted as not checked, or fails where
//! `TEGULA_PTXAS_REQUIRED` is set. Rows of conformance and random programs: compiler/codegen/tests/gpu/ptxas.rs.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use tegula::{
    compile::{CompileError, Compiler, Output, Program},
    ir::{
        Kernel,
        protocol::{Emit, NO_TOOL, Request},
    },
};
use tegula_kernels::registry::{Entry, KERNELS};

#[path = "../../tests/src/skip.rs"]
mod skip;

macro_rules! examples { ($($name:ident :: $kernel:ident $file:literal $dims:tt $(<$of:ty>)?;)*) => {
    $(#[path = $file] #[allow(dead_code)] mod $name;)*
    fn examples() -> Vec<(&'static str, Kernel)> {
        vec![$((stringify!($name), $name::$kernel::ir$(::<$of>)?().dims$dims.build().unwrap())),*]
    }
} }
// With the dims that they launch with, but for tiles that are made for CPUs.
examples! {
    vector_add::vector_add "../examples/vector_add.rs" (1024);
    softmax::softmax "../examples/softmax.rs" (1024);
    matmul::matmul "../examples/matmul.rs" (96, 64, 128) <f32>;
    layer_norm::layer_norm "../examples/layer_norm.rs" (1024);
    dropout::dropout "../examples/dropout.rs" (1024);
    flash_attention::flash "../examples/flash_attention.rs" (32, 64, 64);
    histogram::histogram "../examples/histogram.rs" (1024);
}

/// Kernels of which registers spill, and why that is put up with.
const SPILLS: &[(&str, &str)] = &[];

/// A kernel to assemble.
struct Case {
    name: String,
    kernel: Kernel,
    target: &'static str,
}

/// Each kernel as it is for a target, and with each value of each of its settings.
fn instances(entry: &Entry, target: &str) -> Vec<(String, Kernel)> {
    let mut all = vec![(entry.name.to_owned(), entry.ir(target, &[], &[]).unwrap())];
    for setting in entry.settings {
        for choice in (setting.choices)().into_iter().filter(|c| *c != setting.default_on(target)) {
            let set = [(setting.name.to_owned(), choice.to_owned())];
            // Panels are for CPUs. Float weights are no blocks of codes, which is an error of the kernel's.
            if setting.name != "layout"
                && let Ok(kernel) = entry.ir(target, &[], &set)
            {
                all.push((format!("{} {}={choice}", entry.name, setting.name), kernel));
            }
        }
    }
    all
}

fn cases() -> Vec<Case> {
    let mut all = vec![];
    for target in ["sm_80", "sm_89", "sm_90a"] {
        let library = KERNELS.iter().flat_map(|entry| instances(entry, target));
        let examples = examples().into_iter().map(|(name, kernel)| (format!("example {name}"), kernel));
        all.extend(library.chain(examples).map(|(name, kernel)| Case { name, kernel, target }));
    }
    all
}

/// Assembles them on all cores.
fn assemble(cases: &[Case]) -> Vec<Result<Output, CompileError>> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let compiler = Compiler::new(Program::new(), threads, Duration::from_secs(120));
    let (next, done) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let work = || {
        while let Some((i, case)) = Some(next.fetch_add(1, Relaxed)).and_then(|i| Some((i, cases.get(i)?))) {
            let request =
                Request { kernel: case.kernel.text(), target: case.target.into(), emit: Emit::Cubin, checked: false };
            let output = compiler.compile(&case.name, &request);
            done.lock().unwrap().push((i, output));
        }
    };
    std::thread::scope(|s| (0..threads).for_each(|_| drop(s.spawn(work))));
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, output)| output).collect()
}

/// Whether NVIDIA's tools are not there, and may be missing.
fn missing(e: &CompileError) -> bool {
    let missing = matches!(e, CompileError::Rejected { message, .. } if message.starts_with(NO_TOOL));
    assert!(!missing || std::env::var_os("TEGULA_PTXAS_REQUIRED").is_none(), "TEGULA_PTXAS_REQUIRED is set, and {e}");
    missing
}

#[test]
fn every_kernel_assembles_without_spills() {
    let cases = cases();
    if assemble(&cases[..1])[0].as_ref().is_err_and(missing) {
        return skip::skip("the library's kernels are not assembled: no ptxas (./x setup --nvidia)");
    }
    let mut faults = vec![];
    let mut spilled = vec![];
    for (case, output) in cases.iter().zip(assemble(&cases)) {
        let what = format!("{} on {}", case.name, case.target);
        let output = match output {
            Ok(output) => output,
            Err(e) => {
                faults.push(format!("{what}: {e}"));
                continue;
            }
        };
        let meta = output.meta;
        assert!(output.bytes.starts_with(b"\x7fELF") && meta.registers > 0, "{what}");
        // ptxas says so when it changed the code's meaning for speed, or the other way round.
        faults.extend(meta.remarks.iter().filter(|r| r.starts_with("ptxas:")).map(|r| format!("{what}: {r}")));
        if meta.spill_bytes > 0 {
            assert!(meta.remarks.iter().any(|r| r.contains("spill to local memory")), "{what} spills unsaid");
            spilled.push(case.name.clone());
            if !SPILLS.iter().any(|(name, _)| *name == case.name) {
                faults.push(format!("{what}: {}", meta.remarks.join("; ")));
            }
        }
        // Local memory beyond that would be an array that registers could not index.
        if meta.spill_bytes == 0 && meta.stack_bytes > 0 {
            faults.push(format!("{what}: {} bytes of local memory", meta.stack_bytes));
        }
    }
    faults.extend(
        SPILLS
            .iter()
            .filter(|(name, _)| !spilled.iter().any(|s| s == name))
            .map(|(name, _)| format!("{name} spills no more: it can go from the list")),
    );
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), cases.len(), faults.join("\n"));
}

/// What the compiler makes of a kernel with all that a launch of whole tensors lets it assume.
fn text(kernel: &str, emit: Emit) -> Result<String, CompileError> {
    let entry = tegula_kernels::registry::find(kernel).unwrap();
    let request =
        Request { kernel: entry.ir("sm_90a", &[], &[]).unwrap().text(), target: "sm_90a".into(), emit, checked: false };
    let output = Compiler::new(Program::new(), 1, Duration::from_secs(120)).compile(kernel, &request)?;
    Ok(String::from_utf8(output.bytes).unwrap())
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn contiguous_rows_move_sixteen_bytes_at_a_time() {
    // 1024 f32 on 128 threads: eight a thread, two accesses of four, for each tensor.
    for (kernel, inputs) in [("vector_add", 2), ("softmax", 1)] {
        let ptx = text(kernel, Emit::Asm).unwrap();
        assert_eq!(count(&ptx, "ld.global.nc.v4.b32"), 2 * inputs, "{kernel}: {ptx}");
        assert_eq!(count(&ptx, "st.global.v4.b32"), 2, "{kernel}: {ptx}");
        assert_eq!(count(&ptx, ".local"), 0, "{kernel}: {ptx}");
        // ptxas keeps them so.
        let sass = match text(kernel, Emit::Sass) {
            Err(e) if missing(&e) => return skip::skip("machine code is not looked at: no ptxas (./x setup --nvidia)"),
            sass => sass.unwrap(),
        };
        assert_eq!(count(&sass, "LDG.E.128"), 2 * inputs, "{kernel}: {sass}");
        assert_eq!(count(&sass, "STG.E.128"), 2, "{kernel}: {sass}");
        assert_eq!(count(&sass, "LDL") + count(&sass, "STL"), 0, "{kernel}: {sass}");
    }
}
