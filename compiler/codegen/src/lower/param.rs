//! What CPU and GPU lowerings have in common: parameters of a kernel as values, and what a lowering gives.

use super::build::{Build, V};
use tegula_ir::{Elem, Loc, PackedType, Quant, Type, Value, ViewType, protocol::Meta};

/// A lowered kernel.
pub struct Lowered<'c> {
    /// MLIR with one entry: [`tegula_ir::abi::ENTRY`] on CPUs, [`tegula_ir::abi::gpu::ENTRY`] on GPUs.
    pub module: melior::ir::Module<'c>,
    /// What the runtime must know.
    pub meta: Meta,
    /// A remark that registers of a GPU's threads may run out, by estimate: for callers that do not ask the assembler.
    pub estimate: Option<String>,
}

/// Why a kernel has no code for a target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What is wrong.
    pub message: String,
    /// The user's line.
    pub loc: Option<Loc>,
}

impl Error {
    /// Of a parameter of a type that no launch passes.
    pub(super) fn parameter(name: &str, t: &Type) -> Error {
        let message =
            format!("parameter `{name}` has type `{t}`: only scalars, views and packed matrices can be passed");
        Error { message, loc: None }
    }
}

/// A view: addresses in memory.
#[derive(Clone, Debug)]
pub struct ViewVal<'c> {
    /// The parameter it is a part of.
    pub root: Value,
    pub elem: Elem,
    pub base: V<'c>,
    /// i64, at least 0.
    pub extents: Vec<V<'c>>,
    /// i64, in elements. The innermost is the constant 1 where the launch guarantees it.
    pub strides: Vec<V<'c>>,
    pub unit: bool,
    /// Offsets of its elements in bytes are below 2^31.
    pub small: bool,
    pub mutable: bool,
    /// Name of the parameter.
    pub name: String,
}

impl<'c> ViewVal<'c> {
    /// A parameter at `base`, whose extents and strides are the next words of the arguments.
    pub fn parameter(
        b: &Build<'c>,
        (root, name): (Value, &str),
        t: &ViewType,
        base: V<'c>,
        mut next: impl FnMut() -> V<'c>,
    ) -> ViewVal<'c> {
        let extents = (0..t.rank).map(|_| next()).collect();
        let mut strides: Vec<V> = (0..t.rank).map(|_| next()).collect();
        if let Some(last) = strides.last_mut()
            && t.facts.unit
        {
            *last = b.c64(1);
        }
        ViewVal {
            root,
            elem: t.elem,
            base,
            extents,
            strides,
            unit: t.facts.unit || t.rank == 0,
            small: t.facts.small,
            mutable: t.mutable,
            name: name.into(),
        }
    }
}

/// A packed matrix.
#[derive(Clone, Debug)]
pub struct PackedVal<'c> {
    pub base: V<'c>,
    /// Extents of the matrix, i64.
    pub k: V<'c>,
    pub n: V<'c>,
    pub layout: String,
    pub quant: Quant,
    /// Name of the parameter.
    pub name: String,
}

impl<'c> PackedVal<'c> {
    /// A parameter at `base`, whose extents are the next words of the arguments.
    pub fn parameter(name: &str, t: &PackedType, base: V<'c>, mut next: impl FnMut() -> V<'c>) -> PackedVal<'c> {
        let (k, n) = (next(), next());
        PackedVal { base, k, n, layout: t.layout.clone(), quant: t.quant, name: name.into() }
    }
}
