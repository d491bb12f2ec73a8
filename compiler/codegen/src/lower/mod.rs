//! From tile IR to MLIR. One module a target; each finds an op's code by its [`tegula_ir::OpKind`].
//!
//! What targets share: [`build`], sugar over MLIR's builders; `machine`, how elements are held; `convert`, conversions
//! between element types; `arith`, arithmetic on them; `param`, parameters as values.

mod arith;
pub mod build;
mod convert;
pub mod cpu;
pub mod gpu;
mod machine;
mod param;
