//! What the code that `#[kernel]`, `#[func]` and `#[derive(Carry)]` make calls. Not for use by hand.

pub use crate::context::Handle;
pub use crate::dim::{Dim, Named};
pub use crate::flow::*;
pub use crate::launch::{Arg, Instance, Ir, KernelInfo, Launch, Options, Param, ParamInfo, Params};
pub use std::any::TypeId;

/// The type of a function item.
pub fn type_of<F: 'static>(_: &F) -> TypeId {
    TypeId::of::<F>()
}
