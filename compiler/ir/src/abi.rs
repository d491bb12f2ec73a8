//! How compiled kernels are called: shared by the code generator, which makes them, and the runtime, which calls them. GPU
//! kernels: see [`gpu`]; what follows is about CPUs.
//!
//! A kernel's shared object exports one function, [`ENTRY`], of type [`EntryFn`]. It runs the programs `begin..end` of a
//! grid, where program (p0, p1, p2) of a grid (g0, g1, g2) has the linear number `p0 + g0·(p1 + g1·p2)`. Calls for
//! disjoint ranges may run at the same time on different threads.
//!
//! Arguments are 64-bit words, parameter after parameter in the kernel's order ([`words`]):
//!
//! | parameter | words |
//! |---|---|
//! | view of rank R | base address, R extents (elements), R strides (elements, signed) |
//! | scalar | its bits, zero-extended |
//! | packed | address, K, N |

use crate::types::Type;
use std::ffi::c_void;

/// Name of the exported function.
pub const ENTRY: &str = "tegula_kernel";

/// Alignment in bytes of the scratch memory a kernel is given.
pub const SCRATCH_ALIGN: usize = 64;

/// Bit of [`Ctx::flags`]: report failed assertions and indices out of range.
pub const FLAG_CHECKED: u32 = 1;

/// The exported function. `scratch` is memory of this thread alone, [`SCRATCH_ALIGN`]-aligned, of as many bytes as the
/// artifact's metadata asks for; its contents are undefined before and after. It is never null, even when 0 bytes are
/// asked for.
pub type EntryFn = unsafe extern "C" fn(args: *const u64, ctx: *const Ctx, begin: u64, end: u64, scratch: *mut u8);

/// Called by a kernel about a site of the artifact's table: a failed assertion, an index out of range (`value` is the
/// index), or one printed element (`value` is its bits, zero-extended). `program` is the linear program number. May be
/// called from several threads at once; the kernel goes on after it returns.
pub type ReportFn = unsafe extern "C" fn(ctx: *const Ctx, site: u32, program: u64, value: i64);

/// What every program of a launch may read besides its arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ctx {
    /// Programs along each axis; each at least 1, their product below 2^63.
    pub grid: [i32; 3],
    /// `FLAG_…` bits.
    pub flags: u32,
    /// Where reports go.
    pub report: ReportFn,
    /// The runtime's own; kernels do not read it.
    pub user: *mut c_void,
}

impl Ctx {
    /// Byte offset of [`Ctx::grid`].
    pub const GRID: usize = std::mem::offset_of!(Ctx, grid);
    /// Byte offset of [`Ctx::flags`].
    pub const FLAGS: usize = std::mem::offset_of!(Ctx, flags);
    /// Byte offset of [`Ctx::report`].
    pub const REPORT: usize = std::mem::offset_of!(Ctx, report);
}

/// Argument words of a parameter. Quantised tiles are never parameters and take none.
pub fn words(ty: &Type) -> usize {
    match ty {
        Type::View(v) => 1 + 2 * v.rank,
        Type::Tile(_) => 1,
        Type::Packed(_) => 3,
        Type::QTile(_) => 0,
    }
}

/// How compiled GPU kernels are called.
///
/// A kernel's PTX has one entry, [`gpu::ENTRY`]. A program is a block: the grid of a launch is the grid of programs, the
/// block has 32 threads for each of the artifact's warps in x, and `shared_bytes` of dynamic shared memory. The entry's
/// parameters are 64-bit words, those of the table above, and at the end the device address of a report buffer, or 0.
///
/// The report buffer: u32 count, u32 capacity, 8 bytes nothing, then `capacity` records of u64 site, u64 program (linear
/// number), u64 value. The host zeroes the count and sets the capacity before a launch; afterwards the count says how
/// many reports there were, of which the first `capacity` are there. Reports of one program about one site are in order
/// when one thread makes them, as for prints.
pub mod gpu {
    /// Name of the entry.
    pub const ENTRY: &str = "tegula_kernel";
    /// Byte offset of the capacity in a report buffer.
    pub const CAPACITY: usize = 4;
    /// Byte offset of the first record.
    pub const RECORDS: usize = 16;
    /// Bytes of a record.
    pub const RECORD: usize = 24;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Elem, PackedType, Quant, ViewFacts, ViewType};

    #[test]
    fn the_context_has_the_documented_layout() {
        // Fixed by kernels already compiled: a change here must change protocol::VERSION.
        assert_eq!((Ctx::GRID, Ctx::FLAGS, Ctx::REPORT, size_of::<Ctx>()), (0, 12, 16, 32));
    }

    #[test]
    fn words_of_parameters() {
        let view = |rank| Type::View(ViewType { elem: Elem::F32, rank, mutable: false, facts: ViewFacts::default() });
        assert_eq!((words(&view(0)), words(&view(1)), words(&view(3))), (1, 3, 7));
        assert_eq!(words(&Type::scalar(Elem::Bool)), 1);
        assert_eq!(words(&Type::Packed(PackedType { quant: Quant::Q4_0, layout: "gguf".into() })), 3);
    }
}
