//! tegula

pub mod memory;
pub mod pool;
