//! Compiling and calling a function whose body a test emits.

use tegula_codegen::{
    emit::{self, CpuTarget, Mlir, Stage},
    lower::cpu::{
        build::{Build, V},
        micro::{Code, Isa},
    },
};

/// The targets of these tests.
pub const TARGETS: [&str; 4] = ["x86-64-v3", "x86-64-v3,+avxvnni", "x86-64-v4", "x86-64-v4,+avx512vnni"];

/// Whether this machine runs code for `target`.
pub fn runs(target: &str) -> bool {
    let avx2 = std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
    let avx512 = std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl");
    avx2 && (!target.contains("v4") || avx512)
        && (!target.contains("avxvnni") || std::is_x86_feature_detected!("avxvnni"))
        && (!target.contains("avx512vnni") || std::is_x86_feature_detected!("avx512vnni"))
}

/// A compiled function of eight addresses.
pub struct Function {
    entry: unsafe extern "C" fn(*const u8, *const u8, *const u8, *const u8, *const u8, *const u8, *const u8, *const u8),
    /// Its assembly.
    pub asm: String,
    _library: libloading::Library,
    _file: tempfile::TempDir,
}

/// Compiles a function of eight addresses, whose body `emit` appends.
pub fn compile(target: &str, emit: impl for<'c> FnOnce(&Code<'_, 'c>, &[V<'c>])) -> Function {
    let target = CpuTarget::parse(target).unwrap();
    let isa = Isa::of(&target).unwrap();
    let mlir = Mlir::new();
    let build = Build::new(mlir.context());
    build.function("f", &[build.ptr(); 8], &[], false, |addresses| {
        emit(&Code::new(&build, isa), addresses);
        vec![]
    });
    let mut module = build.finish();
    let (code, texts) = emit::compile(&mlir, &mut module, &target, &[Stage::Asm]).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.so");
    std::fs::write(&file, code).unwrap();
    // SAFETY: the object was made above, and its one function has this signature.
    let library = unsafe { libloading::Library::new(&file) }.unwrap();
    let entry = unsafe { *library.get(b"f").unwrap() };
    Function { entry, asm: texts.into_iter().next().unwrap(), _library: library, _file: dir }
}

impl Function {
    /// Calls it.
    ///
    /// # Safety
    /// The addresses are what the emitted code takes them for.
    pub unsafe fn call(&self, arguments: &[*const u8]) {
        let p = |i: usize| arguments.get(i).copied().unwrap_or(std::ptr::null());
        unsafe { (self.entry)(p(0), p(1), p(2), p(3), p(4), p(5), p(6), p(7)) }
    }
}

/// Random numbers (xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// In (-1, 1), never 0.
    pub fn float(&mut self) -> f32 {
        ((self.bits() >> 40) as f32 + 0.5) / (1 << 23) as f32 - 1.0
    }
    pub fn floats(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.float()).collect()
    }
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.bits() >> 56) as u8).collect()
    }
}

/// Scratch memory at a 64-byte boundary, filled with a pattern that no test expects.
pub struct Scratch(Vec<Line>);

#[repr(C, align(64))]
#[derive(Clone)]
struct Line([u8; 64]);

impl Scratch {
    pub fn new(bytes: usize) -> Scratch {
        Scratch(vec![Line([0xee; 64]); bytes.div_ceil(64).max(1)])
    }
    #[allow(dead_code)] // of examples/dot.rs
    pub fn zeroed(bytes: usize) -> Scratch {
        Scratch(vec![Line([0; 64]); bytes.div_ceil(64).max(1)])
    }
    /// Bytes that are finite numbers in whatever type they are read.
    #[allow(dead_code)] // of examples/dot.rs
    pub fn fill_pattern(&mut self) {
        for (i, line) in self.0.iter_mut().enumerate() {
            line.0.iter_mut().enumerate().for_each(|(j, b)| *b = ((i * 7 + j * 13) % 23) as u8);
        }
    }
    pub fn address(&mut self) -> *const u8 {
        self.0.as_mut_ptr().cast()
    }
}
