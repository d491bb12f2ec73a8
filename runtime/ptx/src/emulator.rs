//! The crate's front: modules, options, launches.

use crate::{
    arch::{self, Head},
    counters::Counters,
    decode,
    error::Error,
    exec::{
        async_copy::Completion,
        fault::{Fault, FaultKind},
        lanes::Tier,
        launch::{self, Launch},
        program::Program,
    },
    mem::global::Memory,
    text::{
        ast::{self, Init, Space},
        parse,
    },
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// What strict mode checks, beyond bounds, which are always checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strict {
    /// Addresses must be multiples of the access size.
    pub alignment: bool,
    /// Reading memory that nothing wrote is a fault.
    pub memory: bool,
    /// Reading registers that nothing wrote is a fault.
    pub registers: bool,
    /// `.aligned` instructions must be executed by whole warps.
    pub participation: bool,
    /// Accesses to shared memory that nothing orders are faults, as are asynchronous reads of what no proxy fence
    /// published.
    pub races: bool,
}

impl Strict {
    /// Everything.
    pub const ON: Strict = Strict { alignment: true, memory: true, registers: true, participation: true, races: true };
    /// Nothing but bounds.
    pub const OFF: Strict =
        Strict { alignment: false, memory: false, registers: false, participation: false, races: false };
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Checks.
    pub strict: Strict,
    /// When asynchronous results arrive.
    pub completion: Completion,
    /// Host threads; 0 for as many as the machine has cores.
    pub threads: usize,
    /// Use the portable loops, not the machine's best instruction set. The bits are the same.
    pub portable: bool,
    /// Count sectors and bank conflicts.
    pub count_traffic: bool,
    /// Warp instructions that one cluster may execute.
    pub limit: u64,
    /// Bytes of shared memory that a block may have.
    pub max_shared: usize,
}

impl Default for Options {
    /// Strict, early completion, all cores.
    fn default() -> Options {
        Options {
            strict: Strict::ON,
            completion: Completion::Early,
            threads: 0,
            portable: false,
            count_traffic: true,
            limit: 10_000_000_000,
            max_shared: 227 << 10,
        }
    }
}

impl Options {
    /// Fast: no checks but bounds, no traffic counters.
    pub fn fast() -> Options {
        Options { strict: Strict::OFF, count_traffic: false, ..Options::default() }
    }
}

/// Sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; None for the kernel's own `.reqnctapercluster`, or no clusters.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: usize,
}

impl Grid {
    /// A one-dimensional grid of `blocks` of `threads`.
    pub fn new(blocks: u32, threads: u32) -> Grid {
        Grid { grid: [blocks, 1, 1], block: [threads, 1, 1], cluster: None, dynamic_shared: 0 }
    }

    /// With dynamic shared memory.
    pub fn shared(self, bytes: usize) -> Grid {
        Grid { dynamic_shared: bytes, ..self }
    }

    /// With clusters.
    pub fn cluster(self, cluster: [u32; 3]) -> Grid {
        Grid { cluster: Some(cluster), ..self }
    }
}

/// A kernel argument.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Param {
    U8(u8),
    U16(u16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    /// A struct or array, such as a tensor map.
    Bytes(Vec<u8>),
}

impl Param {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Param::U8(v) => v.to_le_bytes().to_vec(),
            Param::U16(v) => v.to_le_bytes().to_vec(),
            Param::U32(v) => v.to_le_bytes().to_vec(),
            Param::I32(v) => v.to_le_bytes().to_vec(),
            Param::U64(v) => v.to_le_bytes().to_vec(),
            Param::I64(v) => v.to_le_bytes().to_vec(),
            Param::F32(v) => v.to_le_bytes().to_vec(),
            Param::F64(v) => v.to_le_bytes().to_vec(),
            Param::Bytes(v) => v.clone(),
        }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Sums.
    pub counters: Counters,
    /// What the kernel printed.
    pub output: String,
}

/// A parsed module. Kernels are decoded when first launched.
pub struct Module {
    /// The syntax tree.
    pub ast: ast::Module,
    text: String,
    number: u64,
    programs: Mutex<HashMap<(String, Tier), Arc<Program>>>,
}

static NEXT_MODULE: AtomicU64 = AtomicU64::new(0);

impl Module {
    /// Parses PTX for a device of architecture `target` (`sm_80`, `sm_90a`). A module made for a newer architecture, or
    /// for the special features (`a`) of another one, is an error.
    pub fn parse(text: &str, target: &str) -> Result<Module, Error> {
        let ast = parse::parse(text)?;
        let wanted = ast.target.first().cloned().unwrap_or_default();
        let (Some(device), Some(module)) = (arch::parse(target), arch::parse(&wanted)) else {
            return Err(Error::new(1, format!("`{target}` or `{wanted}` is no architecture such as sm_80 or sm_90a")));
        };
        let runs = if module.1 { device == module || target == wanted } else { device.0 >= module.0 };
        if !runs {
            return Err(Error::new(1, format!("the module is for {wanted}, which a device of {target} cannot run")));
        }
        Head::of(&ast)?;
        if ast.address_size == 32 {
            return Err(Error::new(1, "32-bit addresses are not supported: use .address_size 64"));
        }
        let number = NEXT_MODULE.fetch_add(1, Ordering::Relaxed);
        Ok(Module { ast, text: text.to_string(), number, programs: Mutex::default() })
    }

    /// Names of the kernels.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.ast.functions.iter().filter(|f| f.entry).map(|f| f.name.as_str())
    }

    /// Instructions of the module that the emulator does not know, or that its `.version` or `.target` does not have.
    pub fn unknown(&self) -> Vec<Error> {
        decode::unknown(&self.ast)
    }

    /// The decoded kernel `entry`.
    pub fn program(&self, entry: &str, tier: Tier) -> Result<Arc<Program>, Error> {
        let key = (entry.to_string(), tier);
        let mut programs = match self.programs.lock() {
            Ok(programs) => programs,
            // The cache is only ever extended: a panic elsewhere left it whole.
            Err(poisoned) => poisoned.into_inner(),
        };
        if let Some(program) = programs.get(&key) {
            return Ok(program.clone());
        }
        let program = Arc::new(decode::decode(&self.ast, &self.text, entry, tier)?);
        programs.insert(key, program.clone());
        Ok(program)
    }
}

/// An emulated device: its memory and how to run on it.
pub struct Emulator {
    /// Global memory.
    pub memory: Memory,
    /// How to run.
    pub options: Options,
    /// Addresses of the variables of each module that ran.
    variables: HashMap<u64, Vec<u64>>,
}

impl Emulator {
    /// A device with empty memory.
    pub fn new(options: Options) -> Emulator {
        Emulator { memory: Memory::new(), options, variables: HashMap::new() }
    }

    /// Runs kernel `entry` to its end.
    pub fn launch(&mut self, module: &Module, entry: &str, grid: Grid, params: &[Param]) -> Result<Report, Box<Fault>> {
        let tier = if self.options.portable { Tier::Portable } else { Tier::best() };
        let program = module.program(entry, tier).map_err(|e| launch_fault(entry, e.to_string()))?;
        let params = pack_params(&program, params).map_err(|m| launch_fault(entry, m))?;
        let variables = self.load(module).map_err(|m| launch_fault(entry, m))?;
        let declared = program.limits.required_cluster;
        let launch = Launch {
            options: &self.options,
            memory: &self.memory,
            program: &program,
            tier,
            grid: grid.grid,
            block: grid.block,
            cluster: grid.cluster.or(declared).unwrap_or([1; 3]),
            explicit_cluster: grid.cluster.or(declared).is_some(),
            dynamic_shared: grid.dynamic_shared,
            params: &params,
            variables: &variables,
            output: Mutex::default(),
        };
        launch::check(&launch)?;
        let counters = launch.run()?;
        Ok(Report { counters, output: launch.output.into_inner().unwrap_or_default() })
    }

    /// Address of a module's variable, loading the module if need be.
    pub fn variable(&mut self, module: &Module, name: &str) -> Option<u64> {
        let index = module.ast.variables.iter().position(|v| v.name == name)?;
        self.load(module).ok()?.get(index).copied()
    }

    /// Places a module's variables in memory, once.
    fn load(&mut self, module: &Module) -> Result<Vec<u64>, String> {
        if let Some(addresses) = self.variables.get(&module.number) {
            return Ok(addresses.clone());
        }
        let mut addresses = Vec::new();
        for v in &module.ast.variables {
            let global = matches!(v.space, Space::Global | Space::Const);
            addresses.push(if global { self.memory.alloc_with(&v.name, &vec![0; v.bytes()]) } else { 0 });
        }
        for (v, address) in module.ast.variables.iter().zip(&addresses) {
            if *address == 0 {
                continue;
            }
            let mut bytes = Vec::with_capacity(v.bytes());
            for init in &v.init {
                let value = match init {
                    Init::Int(n) => *n as u64,
                    Init::F32(bits) => *bits as u64,
                    Init::F64(bits) if v.ty.bytes() == 4 => (f64::from_bits(*bits) as f32).to_bits() as u64,
                    Init::F64(bits) => *bits,
                    Init::Address { symbol, offset, .. } => {
                        let of = module.ast.variables.iter().position(|w| w.name == *symbol);
                        let function = module.ast.functions.iter().position(|f| f.name == *symbol);
                        match (of, function) {
                            (Some(i), _) => addresses[i].wrapping_add(*offset as u64),
                            (None, Some(i)) => i as u64 + 1,
                            (None, None) => {
                                return Err(format!("`{}` starts with the address of unknown `{symbol}`", v.name));
                            }
                        }
                    }
                };
                bytes.extend(&value.to_le_bytes()[..v.ty.bytes().min(8)]);
            }
            bytes.truncate(v.bytes());
            self.memory.write(*address, &bytes).map_err(|e| e.to_string())?;
            if v.space == Space::Const {
                self.memory.protect(*address);
            }
        }
        self.variables.insert(module.number, addresses.clone());
        Ok(addresses)
    }
}

fn launch_fault(entry: &str, message: String) -> Box<Fault> {
    let mut fault = Fault::new(FaultKind::Launch, message);
    fault.entry = entry.to_string();
    fault
}

/// Lays the arguments out as the kernel's parameters; numbers and sizes must agree.
fn pack_params(program: &Program, params: &[Param]) -> Result<Vec<u128>, String> {
    if params.len() != program.params.len() {
        let names: Vec<_> = program.params.iter().map(|p| p.name.as_str()).collect();
        return Err(format!("takes {} parameters ({}), got {}", names.len(), names.join(", "), params.len()));
    }
    let mut bytes = vec![0u8; program.param_bytes.next_multiple_of(16).max(16)];
    for (param, slot) in params.iter().zip(&program.params) {
        let value = param.bytes();
        if value.len() != slot.bytes {
            return Err(format!("parameter `{}` has {} bytes, got {}", slot.name, slot.bytes, value.len()));
        }
        bytes[slot.offset..slot.offset + slot.bytes].copy_from_slice(&value);
    }
    Ok(bytes.chunks_exact(16).map(|c| u128::from_le_bytes(std::array::from_fn(|i| c[i]))).collect())
}
