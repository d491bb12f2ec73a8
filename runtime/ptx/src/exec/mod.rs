//! Execution: warps of 32 lanes, blocks, clusters, launches.

pub mod async_copy;
pub mod cta;
pub mod fault;
pub mod lanes;
pub mod launch;
pub mod op;
pub mod program;
pub mod regs;
pub mod warp;
