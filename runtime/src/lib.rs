//! tegula

pub mod cache;
pub mod compile;
pub mod memory;
pub mod pool;
