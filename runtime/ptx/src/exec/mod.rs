//! Execution: warps of 32 lanes, blocks, clusters, launches.

pub mod async_copy;
pub mod bulk_groups;
pub mod cluster_barrier;
pub mod cta;
pub mod endless;
pub mod fault;
pub mod in_flight;
pub mod lanes;
pub mod launch;
pub mod mbarrier;
pub mod op;
pub mod products;
pub mod program;
pub mod regs;
pub mod tile;
pub mod warp;
