//! A tile of an array on its way between global and shared memory, and what bulk copies do to bytes.

use crate::{
    isa::atomic::Fold,
    mem::access::WRITTEN,
    tensor_map::{Element, TensorMap},
};
use std::ptr;

/// A tile and both its ends.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Shape and layout.
    pub map: TensorMap,
    /// Position of its first element in the array, innermost first. Negative ones are outside.
    pub at: [i64; 5],
    /// Of a gather or scatter the positions of the four rows along dimension 1, in place of `at[1]` and what follows it.
    pub rows: Option<[i64; 4]>,
    /// Host address of the array's first element; used only for elements inside of the array.
    pub global: *mut u8,
    /// Host address of its shadow, or null.
    pub global_shadow: *mut u8,
    /// Host address of shared address 0 of the tile's block.
    pub shared: *mut u8,
    /// Shared address of the tile, without the block's number.
    pub address: u64,
}

// SAFETY: a record of addresses; `load`, `store` and `fold` state when they may be used.
unsafe impl Send for Tile {}

/// A run of elements that lie side by side on both ends.
struct Run {
    /// Host address in shared memory.
    shared: *mut u8,
    /// Bytes from the array's start; None outside of it.
    global: Option<isize>,
    elements: usize,
}

impl Tile {
    /// Least and greatest byte (one past) of the array that the tile touches, from the array's start; None when it lies
    /// outside.
    pub fn touched(&self) -> Option<(u64, u64)> {
        let (mut low, mut high) = (0u64, 0u64);
        for d in 0..self.map.extents.len() {
            let stride = if d == 0 { self.map.element.bytes() as u64 } else { self.map.strides[d - 1] };
            if let (1, Some(rows)) = (d, self.rows) {
                let inside = rows.into_iter().filter(|r| (0..self.map.extents[1] as i64).contains(r));
                let (first, last) = (inside.clone().min()?, inside.max()?);
                low = (first as u64).saturating_mul(stride).saturating_add(low);
                high = (last as u64).saturating_mul(stride).saturating_add(high);
                continue;
            }
            let step = self.map.steps[d] as i64;
            // The first and last taken element inside, if any.
            let first = if self.at[d] >= 0 { 0 } else { (-self.at[d] + step - 1) / step };
            let last =
                (self.map.taken(d) as i64 - 1).min((self.map.extents[d] as i64 - 1 - self.at[d]).div_euclid(step));
            if first > last {
                return None;
            }
            low = ((self.at[d] + first * step) as u64).saturating_mul(stride).saturating_add(low);
            high = ((self.at[d] + last * step) as u64).saturating_mul(stride).saturating_add(high);
        }
        Some((low, high.saturating_add(self.map.element.bytes() as u64)))
    }

    /// Calls `f` for the tile's runs, at most 16 bytes of shared memory each.
    fn runs(&self, mut f: impl FnMut(Run)) {
        let map = &self.map;
        let size = map.element.bytes();
        let taken: [usize; 5] = std::array::from_fn(|d| if d < map.extents.len() { map.taken(d) } else { 1 });
        let row_bytes = taken[0] * size;
        let rows = taken[1] * taken[2] * taken[3] * taken[4];
        for row in 0..rows {
            let (mut inside, mut from, mut left) = (true, 0i64, row);
            for d in 1..map.extents.len() {
                let x = match self.rows {
                    Some(rows) => rows[left % 4],
                    None => self.at[d] + (left % taken[d]) as i64 * map.steps[d] as i64,
                };
                left /= taken[d];
                inside &= x >= 0 && (x as u64) < map.extents[d];
                from = from.wrapping_add(x.wrapping_mul(map.strides[d - 1] as i64));
            }
            let (step, per) = (map.steps[0] as i64, 16 / size);
            let mut i = 0;
            while i < taken[0] {
                // As many elements as share a 16-byte piece of shared memory and a side of the array's edge.
                let plain = self.address + (row * row_bytes + i * size) as u64;
                let piece = per - (plain as usize % 16) / size;
                let x = self.at[0] + i as i64 * step;
                let mut n = piece.min(taken[0] - i);
                let mut there = inside && x >= 0 && (x as u64) < map.extents[0];
                if step != 1 {
                    n = 1;
                } else if x < 0 {
                    n = n.min(-x as usize);
                } else if there {
                    n = n.min((map.extents[0] - x as u64).min(16) as usize);
                } else {
                    there = false;
                }
                let shared = self.shared.wrapping_add(map.swizzle.apply(plain) as usize);
                let offset = from.wrapping_add(x.wrapping_mul(size as i64)) as isize;
                f(Run { shared, global: there.then_some(offset), elements: n });
                i += n;
            }
        }
    }

    fn mark(&self, global: isize, bytes: usize) {
        if !self.global_shadow.is_null() {
            // SAFETY: the shadow is as long as the array, in which the run lies.
            unsafe { ptr::write_bytes(self.global_shadow.offset(global), WRITTEN, bytes) };
        }
    }

    /// Bytes from the array's start of the first element inside that nothing wrote.
    ///
    /// # Safety
    /// As [`Tile::load`].
    pub unsafe fn uninitialised(&self) -> Option<isize> {
        let mut bad = None;
        if !self.global_shadow.is_null() {
            self.runs(|run| {
                let Some(global) = run.global else { return };
                for i in 0..(run.elements * self.map.element.bytes()) as isize {
                    // SAFETY: the caller's promise.
                    if unsafe { *self.global_shadow.offset(global + i) } != WRITTEN {
                        bad = bad.or(Some(global + i));
                    }
                }
            });
        }
        bad
    }

    /// Global to shared memory.
    ///
    /// # Safety
    /// Bytes [`Tile::touched`] from `global`, and the tile's bytes (rounded up to the swizzle's span) from `address`,
    /// must be valid.
    pub unsafe fn load(&self) {
        let size = self.map.element.bytes();
        let outside = self.map.outside().to_le_bytes();
        let round = matches!(self.map.element, Element::Tf32 | Element::Tf32Ftz);
        self.runs(|run| {
            // SAFETY: the caller's promise; runs stay inside both.
            unsafe {
                match run.global {
                    Some(global) => {
                        ptr::copy_nonoverlapping(self.global.offset(global), run.shared, run.elements * size)
                    }
                    None => {
                        for i in 0..run.elements {
                            ptr::copy_nonoverlapping(outside.as_ptr(), run.shared.add(i * size), size);
                        }
                    }
                }
                if round {
                    for i in 0..run.elements {
                        let p = run.shared.add(4 * i).cast::<f32>();
                        p.write_unaligned(crate::num::small::f32_to_tf32_rn(p.read_unaligned()));
                    }
                }
            }
        });
    }

    /// Shared to global memory; elements outside are dropped.
    ///
    /// # Safety
    /// As [`Tile::load`].
    pub unsafe fn store(&self) {
        let size = self.map.element.bytes();
        self.runs(|run| {
            if let Some(global) = run.global {
                // SAFETY: the caller's promise; runs stay inside both.
                unsafe { ptr::copy_nonoverlapping(run.shared, self.global.offset(global), run.elements * size) };
                self.mark(global, run.elements * size);
            }
        });
    }

    /// Combines shared into global memory, element by element.
    ///
    /// # Safety
    /// As [`Tile::load`]; `fold` must be for the element's size.
    pub unsafe fn fold(&self, fold: Fold) {
        let size = self.map.element.bytes();
        self.runs(|run| {
            let Some(global) = run.global else { return };
            for i in 0..run.elements {
                let mut operand = [0u8; 8];
                // SAFETY: the caller's promise; elements of an array with a 16-byte aligned start and strides are aligned.
                unsafe {
                    ptr::copy_nonoverlapping(run.shared.add(i * size), operand.as_mut_ptr(), size);
                    fold.apply(self.global.offset(global).add(i * size), u64::from_le_bytes(operand));
                }
            }
        });
    }
}

/// What a bulk copy does.
#[derive(Clone, Debug)]
pub enum Job {
    /// Bytes as they are.
    Copy {
        /// Host address of the source.
        from: *const u8,
        /// Host address of the destination.
        to: *mut u8,
        /// How many.
        bytes: usize,
    },
    /// Elements combined into the destination.
    Fold {
        /// Host address of the source.
        from: *const u8,
        /// Host address of the destination.
        to: *mut u8,
        /// How many bytes.
        bytes: usize,
        /// The operation.
        fold: Fold,
    },
    /// Values out of registers, as they are or combined into the destination.
    Value {
        /// Host address of the destination.
        to: *mut u8,
        /// The values.
        value: [u8; 16],
        /// How many bytes of them.
        bytes: usize,
        /// The operation on one value.
        fold: Option<Fold>,
    },
    /// A tile to shared memory.
    Load(Tile),
    /// A tile to global memory.
    Store(Tile),
    /// A tile combined into global memory.
    FoldTile(Tile, Fold),
}

// SAFETY: as `Tile`.
unsafe impl Send for Job {}

impl Job {
    /// Does it.
    ///
    /// # Safety
    /// Both ends must be valid: they were located when the copy was issued, and neither global nor shared memory moves
    /// while a launch runs.
    pub unsafe fn perform(&self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Job::Copy { from, to, bytes } => ptr::copy(*from, *to, *bytes),
                Job::Fold { from, to, bytes, fold } => {
                    for i in (0..*bytes).step_by(fold.width) {
                        let mut operand = [0u8; 8];
                        ptr::copy_nonoverlapping(from.add(i), operand.as_mut_ptr(), fold.width);
                        fold.apply(to.add(i), u64::from_le_bytes(operand));
                    }
                }
                Job::Value { to, value, bytes, fold: None } => ptr::copy_nonoverlapping(value.as_ptr(), *to, *bytes),
                Job::Value { to, value, fold: Some(fold), .. } => {
                    fold.apply(*to, u64::from_le_bytes(std::array::from_fn(|i| value[i])));
                }
                Job::Load(tile) => tile.load(),
                Job::Store(tile) => tile.store(),
                Job::FoldTile(tile, f) => tile.fold(*f),
            }
        }
    }
}
