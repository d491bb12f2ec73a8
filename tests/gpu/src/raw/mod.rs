//! Running PTX as it is: a module, arguments, sizes; on a GPU or on the emulator. What instructions do is found out so.

mod cuda;
mod emulated;

pub use cuda::CudaRaw;
pub use emulated::EmulatedRaw;

use tegula_ptx::TensorMap;

/// What a device must be for a module: instructions come with architectures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// A100 and everything later.
    Sm80,
    /// Minima of magnitudes.
    Sm86,
    /// fp8 conversions and products.
    Sm89,
    /// Clusters, bulk and tensor copies, more of bf16.
    Sm90,
    /// H100 alone: wgmma, setmaxnreg.
    Sm90a,
}

impl Level {
    /// The target that a module names.
    pub fn target(self) -> &'static str {
        match self {
            Level::Sm80 => "sm_80",
            Level::Sm86 => "sm_86",
            Level::Sm89 => "sm_89",
            Level::Sm90 => "sm_90",
            Level::Sm90a => "sm_90a",
        }
    }

    /// Directives that begin a module.
    pub fn head(self) -> String {
        // The least that their instructions need: drivers take what is no newer than they are.
        let version = if matches!(self, Level::Sm89 | Level::Sm90a) { "8.4" } else { "8.0" };
        format!(".version {version}\n.target {}\n.address_size 64\n", self.target())
    }
}

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum Arg {
    /// Memory with these bytes, read only.
    In(Vec<u8>),
    /// So many bytes of zeros; what the kernel leaves there is a result.
    Out(usize),
    /// Memory with these bytes, a result too.
    InOut(Vec<u8>),
    /// A tensor map (its address is set here) of the memory of the argument of that number.
    Map(Box<TensorMap>, usize),
    /// A number.
    U64(u64),
}

/// One launch. The kernel is called `k`.
#[derive(Clone, Debug)]
pub struct Job {
    /// The module.
    pub ptx: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The kernel's parameters in order.
    pub args: Vec<Arg>,
}

impl Job {
    /// Bytes of all results.
    pub fn result_bytes(&self) -> usize {
        let of = |a: &Arg| match a {
            Arg::Out(n) => *n,
            Arg::InOut(b) => b.len(),
            _ => 0,
        };
        self.args.iter().map(of).sum()
    }
}

/// Why a launch gave nothing.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What happened.
    pub message: String,
    /// The device can do nothing more for this process.
    pub fatal: bool,
}

impl Failure {
    /// One after which others can still run.
    pub fn plain(e: impl ToString) -> Failure {
        Failure { message: e.to_string(), fatal: false }
    }
}

/// Something that runs PTX.
pub trait Raw {
    /// For people: `NVIDIA H200`, `emulated:sm_80`.
    fn name(&self) -> String;

    /// Whether modules of a level run here.
    fn supports(&self, level: Level) -> bool;

    /// Runs a kernel to its end and gives the bytes of its results, one after the other.
    ///
    /// # Errors
    /// The module is refused, or the kernel fails.
    fn run(&mut self, job: &Job) -> Result<Vec<u8>, Failure>;
}
