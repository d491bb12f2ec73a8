//! What an executor is given.

use super::{ArgData, KernelInfo, LaunchError};
use crate::error::BuildError;
use std::any::TypeId;
use tegula_ir::Kernel;

/// Most parameters of a kernel.
pub const MAX_PARAMS: usize = 24;
/// Most dims of a kernel.
pub const MAX_DIMS: usize = 8;

/// Runs launches: a stream of a device.
pub trait Executor {
    /// Runs one launch, or queues it. What the arguments borrow is borrowed for this call only; an executor that
    /// returns before the work is done keeps the arguments' owners.
    fn launch(&self, launch: &LaunchDesc<'_>) -> Result<(), LaunchError>;
}

/// Builds the IR of a launch.
pub trait BuildKernel {
    /// Builds and verifies it.
    fn build_kernel(&self) -> Result<Kernel, BuildError>;
}

/// One launch, checked: arguments fit their parameters, the grid has at least one program.
pub struct LaunchDesc<'l> {
    /// The kernel.
    pub kernel: &'static KernelInfo,
    /// Equal keys have equal IR.
    pub key: LaunchKey,
    /// The arguments, one per parameter.
    pub args: &'l [ArgData<'l>],
    /// Programs along each grid axis: each 1 to i32::MAX.
    pub grid: [u32; 3],
    /// Whether indices out of range and failed asserts are to be reported.
    pub checked: bool,
    pub(super) source: &'l dyn BuildKernel,
}

impl LaunchDesc<'_> {
    /// Builds the kernel's IR. Needed once per key.
    pub fn build(&self) -> Result<Kernel, BuildError> {
        self.source.build_kernel()
    }
}

/// What a compiled kernel is found by within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchKey {
    /// The kernel and its generic arguments (element types, constants).
    pub instance: TypeId,
    /// Dims, 0 where there is none.
    pub dims: [u32; MAX_DIMS],
    /// Hash of the build options.
    pub options: u64,
    /// Warps of a GPU program, 0 where the compiler chooses.
    pub warps: u8,
    /// Per argument: unit stride, 16-byte alignment and small offsets of a view, format and layout of a packed matrix.
    pub facts: [u8; MAX_PARAMS],
}
