//! What the tests share: kernels from bodies, machines in every mode, typed memory.
#![allow(dead_code)]

use tegula_ptx::{
    Completion, Emulator, Fault, Grid, Module, Options, Param, Report,
    arch::Need,
    cases::{Case, Column},
};

/// Directives that start a module.
pub const HEAD: &str = ".version 8.6\n.target sm_90a\n.address_size 64\n";

/// A kernel without the module's head.
pub fn entry(name: &str, params: &str, body: &str) -> String {
    format!(".visible .entry {name}({params}) {{ {body} }}")
}

/// A module with one kernel.
pub fn kernel(name: &str, params: &str, body: &str) -> String {
    format!("{HEAD}{}", entry(name, params, body))
}

/// Strict and fast, early and late, best instruction set and portable, one thread and two.
pub fn modes() -> Vec<Options> {
    let strict = Options { threads: 1, ..Options::default() };
    vec![
        strict.clone(),
        Options { completion: Completion::Late, threads: 2, ..strict.clone() },
        Options { portable: true, ..strict },
        Options { threads: 2, ..Options::fast() },
    ]
}

/// A plain number in device memory.
pub trait Plain: Copy {
    /// Its bytes.
    fn bytes(self) -> Vec<u8>;
    /// From its bytes.
    fn of(bytes: &[u8]) -> Self;
}
macro_rules! plain {
    ($($t:ty),*) => {$(impl Plain for $t {
        fn bytes(self) -> Vec<u8> { self.to_le_bytes().to_vec() }
        fn of(bytes: &[u8]) -> $t { <$t>::from_le_bytes(bytes.try_into().unwrap()) }
    })*};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, u128, f32, f64);

/// A module on a device.
pub struct Machine {
    pub module: Module,
    pub emulator: Emulator,
}

/// Parses for sm_90a, the target that runs all.
pub fn machine(text: &str, options: Options) -> Machine {
    let module = Module::parse(text, "sm_90a").unwrap_or_else(|e| panic!("{e}\n{text}"));
    Machine { module, emulator: Emulator::new(options) }
}

/// What is wrong with a module or its kernel.
pub fn machine_error(text: &str, entry: &str) -> String {
    match Module::parse(text, "sm_90a") {
        Err(e) => e.to_string(),
        Ok(m) => match m.program(entry, tegula_ptx::exec::lanes::Tier::best()) {
            Err(e) => e.to_string(),
            Ok(_) => "no error".into(),
        },
    }
}

impl Machine {
    pub fn put<T: Plain>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes()).collect();
        self.emulator.memory.alloc_with("data", &bytes)
    }

    pub fn room(&mut self, bytes: usize) -> u64 {
        self.emulator.memory.alloc("room", bytes)
    }

    pub fn get<T: Plain>(&self, address: u64, n: usize) -> Vec<T> {
        let size = size_of::<T>();
        let bytes = self.emulator.memory.read_vec(address, n * size).unwrap();
        bytes.chunks_exact(size).map(T::of).collect()
    }

    pub fn run(&mut self, entry: &str, grid: Grid, params: &[Param]) -> Result<Report, Box<Fault>> {
        self.emulator.launch(&self.module, entry, grid, params)
    }
}

/// Runs a straight-line body over arrays, one element per thread: a [`Case`] with inputs `%a`, `%b`, `%c` and the result
/// `%d`; types are those of memory: `b8`, `b16`, `b32`, `b64`.
pub fn map(body: &str, inputs: &[(&'static str, &[u64])], out: &'static str, options: Options) -> Vec<u64> {
    let inputs = inputs.iter().map(|(ty, values)| Column { ty, values: values.to_vec() }).collect();
    let case = Case { need: Need::only("sm_90a", 86), ..Case::new(body, body, inputs, out) };
    let mut results = case.run(options).unwrap_or_else(|e| panic!("{body}: {e}"));
    results.remove(0).values
}

/// The best and the portable tier.
pub fn tiers() -> [Options; 2] {
    let strict = Options { threads: 2, ..Options::default() };
    [strict.clone(), Options { portable: true, ..strict }]
}

/// A repeatable stream of 64-bit numbers (SplitMix64).
pub struct Random(pub u64);
impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}
