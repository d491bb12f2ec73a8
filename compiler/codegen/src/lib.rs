//! tegula-codegen: tile IR to machine code, by MLIR and LLVM 22. The only crate that knows melior or inkwell.
//!
//! - [`service`]: a compile request to a response, which is all that `tegulac` does.
//! - [`lower`]: from tile IR to an MLIR module.
//! - [`emit`]: from an MLIR module to a shared object or PTX: passes, LLVM, lld.
//! - [`nvidia`]: from PTX to machine code, by NVIDIA's tools where they are installed.

pub mod emit;
pub mod lower;
pub mod nvidia;
pub mod service;
