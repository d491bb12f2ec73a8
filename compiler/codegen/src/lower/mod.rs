//! From tile IR to MLIR. One module a target; each finds an op's code by its [`tegula_ir::OpKind`].

pub mod cpu;
