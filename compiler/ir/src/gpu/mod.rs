//! What GPU kernels know besides their ops: how many warps run a program, and in which registers each tile is.
//!
//! [`assign`] gives every op that makes a tile an attribute `layouts`, and puts `convert_layout` where a producer and a
//! consumer want different ones. [`Layouts::of`] checks it and answers where a value is. Values that cross control flow
//! have the layouts of the op's results; scalars and single elements are in every thread.
//!
//! **The rule.** Elementwise ops, scans, loops and branches, gathers, scatters and atomics have one layout for all tiles
//! of a shape. `broadcast`, `permute` and a `reshape` that only adds or drops axes of extent 1 move nothing: their result
//! is where the operand's image is. So is the result of a reduction, whose axis is replicated afterwards. Everything else
//! (`dot`, `sort`, `take`, a slice across threads …) goes through shared memory and takes any layouts.

mod assign;
mod classes;
pub mod occupancy;
pub mod pressure;
mod remat;
mod streams;
mod verify;
mod warps;

pub use assign::assign;
pub use pressure::Pressure;
pub use streams::streams;
pub use verify::Layouts;

use crate::{
    attr::{Attr, Key},
    kernel::{Kernel, Op},
    linear::TileLayout,
    ops::OpKind,
    types::TileType,
};

/// Warps of a program before [`assign`] has chosen how many.
pub const DEFAULT_WARPS: usize = 4;

/// Most warps of a program.
pub const MAX_WARPS: usize = 32;

impl Kernel {
    /// Warps that run a program on a GPU: what was set, by the author or by [`assign`].
    pub fn warps(&self) -> usize {
        self.attrs.int(Key::Warps).map_or(DEFAULT_WARPS, |n| n as usize)
    }
    /// Sets the number of warps: a power of two up to [`MAX_WARPS`].
    pub fn set_warps(&mut self, warps: usize) {
        self.attrs.set(Key::Warps, Attr::Int(warps as i64));
    }
}

/// Whether an op computes each element of its result from the operands' at the same index: the table's elementwise ops
/// and those that hand their operand on.
pub fn is_elementwise(kind: OpKind) -> bool {
    kind.is_elementwise() || kind == OpKind::MultipleOf
}

/// Where the result of a shape op or a reduction is if nothing moves, given where the operand is; `None` if something
/// has to.
pub fn image(op: &Op, from: &TileType, to: &TileType, source: &TileLayout) -> Option<TileLayout> {
    match op.kind {
        OpKind::Permute => {
            let perm: Vec<usize> = op.attrs.ints(Key::Perm)?.iter().map(|p| *p as usize).collect();
            Some(source.permute(&from.shape, &perm))
        }
        OpKind::Reshape if squeezed(&from.shape) == squeezed(&to.shape) => Some(source.clone()),
        // A whole piece each: the flat index stays.
        OpKind::Reshape if from.len().is_power_of_two() && source.0.len() == 1 => {
            to.shape.iter().all(|n| n.is_power_of_two()).then(|| source.clone())
        }
        OpKind::Broadcast if from.shape.is_empty() => None,
        OpKind::Broadcast => Some(source.expand(&from.shape, &to.shape)),
        OpKind::Reduce | OpKind::ReduceWith => {
            let axis = op.attrs.int(Key::Axis)? as usize;
            let gone: Vec<bool> = (0..from.rank()).map(|d| d == axis).collect();
            Some(source.project(&from.shape, &gone))
        }
        _ => None,
    }
}

/// Where the operand of a shape op must be for its result to be at `target` without a move.
pub fn preimage(op: &Op, from: &TileType, to: &TileType, target: &TileLayout) -> Option<TileLayout> {
    match op.kind {
        OpKind::Permute => {
            let perm = op.attrs.ints(Key::Perm)?;
            let mut back = vec![0; perm.len()];
            perm.iter().enumerate().for_each(|(i, p)| back[*p as usize] = i);
            Some(target.permute(&to.shape, &back))
        }
        OpKind::Reshape if squeezed(&from.shape) == squeezed(&to.shape) => Some(target.clone()),
        OpKind::Reshape if from.len().is_power_of_two() && target.0.len() == 1 => {
            from.shape.iter().all(|n| n.is_power_of_two()).then(|| target.clone())
        }
        OpKind::Broadcast if !from.shape.is_empty() => {
            let gone: Vec<bool> = (0..from.rank()).map(|d| from.shape[d] != to.shape[d]).collect();
            Some(target.project(&to.shape, &gone))
        }
        _ => None,
    }
}

fn squeezed(shape: &[usize]) -> Vec<usize> {
    shape.iter().copied().filter(|n| *n != 1).collect()
}
