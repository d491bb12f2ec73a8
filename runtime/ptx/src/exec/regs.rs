//! A warp's registers: one row of 32 lanes per 32 bits, predicates as lane masks.
//!
//! An 8-, 16- or 32-bit register is one [`Row`]; a 64-bit register is two neighbouring rows read as 32 `u64`s and a
//! 128-bit one four read as 32 `u128`s. Small values are kept zero-extended. Immediates and the special registers that
//! do not change while a warp runs are rows too, so that an instruction never asks what kind an operand is.

/// 32 lanes of 32 bits.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row(pub [u32; 32]);

/// Where a register starts in [`Regs`], in rows. Only the decoder makes slots, below [`Regs::rows`] of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(crate) u32);

/// The number of a predicate register. Only the decoder makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pred(pub(crate) u32);

/// A predicate operand: a register and whether it is read negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredIn {
    /// The register.
    pub pred: Pred,
    /// `!p`
    pub negated: bool,
}

/// The storage of a lane: `u32`, `u64` or `u128`.
///
/// # Safety
/// `ROWS * 4` must be the size of the type, and every bit pattern a value of it.
pub unsafe trait Store: Copy + Default + Send + Sync + 'static {
    /// Rows that a register of this storage takes.
    const ROWS: u32;
}
// SAFETY: integers of 4, 8 and 16 bytes.
unsafe impl Store for u32 {
    const ROWS: u32 = 1;
}
// SAFETY: as above.
unsafe impl Store for u64 {
    const ROWS: u32 = 2;
}
// SAFETY: as above.
unsafe impl Store for u128 {
    const ROWS: u32 = 4;
}

/// The type of a lane as an instruction sees it.
pub trait Elem: Copy + Send + Sync + 'static {
    /// How it is stored.
    type Store: Store;
    /// Bits of a register that holds it.
    const BITS: u32;
    /// From storage.
    fn load(store: Self::Store) -> Self;
    /// To storage.
    fn store(self) -> Self::Store;
}

macro_rules! elem {
    ($($ty:ty: $store:ty, $s:ident => $from:expr, $v:ident => $into:expr;)*) => {$(
        impl Elem for $ty {
            type Store = $store;
            const BITS: u32 = 8 * size_of::<$ty>() as u32;
            #[inline(always)]
            fn load($s: $store) -> $ty { $from }
            #[inline(always)]
            fn store(self) -> $store { let $v = self; $into }
        }
    )*};
}
elem! {
    u8: u32, s => s as u8, v => v as u32;
    i8: u32, s => s as i8, v => v as u8 as u32;
    u16: u32, s => s as u16, v => v as u32;
    i16: u32, s => s as i16, v => v as u16 as u32;
    u32: u32, s => s, v => v;
    i32: u32, s => s as i32, v => v as u32;
    f32: u32, s => f32::from_bits(s), v => v.to_bits();
    u64: u64, s => s, v => v;
    i64: u64, s => s as i64, v => v as u64;
    f64: u64, s => f64::from_bits(s), v => v.to_bits();
    u128: u128, s => s, v => v;
}

/// The register file of one warp.
#[derive(Clone, Debug)]
pub struct Regs {
    rows: Box<[Row]>,
    preds: Box<[u32]>,
    /// The carry flag of add.cc and friends, per lane.
    pub carry: u32,
}

impl Regs {
    /// A register file with the contents of `rows`, and `preds` predicates that are false.
    pub fn new(rows: &[Row], preds: usize) -> Regs {
        Regs { rows: rows.into(), preds: vec![0; preds].into(), carry: 0 }
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Adds the contents to a hash.
    pub fn digest(&self, hash: &mut impl std::hash::Hasher) {
        self.rows.iter().for_each(|row| super::endless::words(hash, &row.0));
        super::endless::words(hash, &self.preds);
        hash.write_u32(self.carry);
    }

    /// All lanes of a register.
    #[inline(always)]
    pub fn row<S: Store>(&self, slot: Slot) -> &[S; 32] {
        debug_assert!((slot.0 + S::ROWS) as usize <= self.rows.len());
        // SAFETY: the decoder allots every slot with its width inside the file; rows are 64-byte aligned, contiguous,
        // and any bits are a value of S.
        unsafe { &*self.rows.as_ptr().add(slot.0 as usize).cast::<[S; 32]>() }
    }

    /// All lanes of a register, to write.
    #[inline(always)]
    pub fn row_mut<S: Store>(&mut self, slot: Slot) -> &mut [S; 32] {
        debug_assert!((slot.0 + S::ROWS) as usize <= self.rows.len());
        // SAFETY: as in `row`; the borrow of self makes it unique.
        unsafe { &mut *self.rows.as_mut_ptr().add(slot.0 as usize).cast::<[S; 32]>() }
    }

    /// One lane as a value.
    #[inline(always)]
    pub fn lane<T: Elem>(&self, slot: Slot, lane: usize) -> T {
        T::load(self.row::<T::Store>(slot)[lane])
    }

    /// Sets one lane.
    #[inline(always)]
    pub fn set_lane<T: Elem>(&mut self, slot: Slot, lane: usize, value: T) {
        self.row_mut::<T::Store>(slot)[lane] = value.store();
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub fn put<S: Store>(&mut self, slot: Slot, mask: u32, values: &[S; 32]) {
        let row = self.row_mut::<S>(slot);
        if mask == !0 {
            *row = *values;
        } else {
            for i in 0..32 {
                row[i] = if mask & 1 << i != 0 { values[i] } else { row[i] };
            }
        }
    }

    /// The lanes in which a predicate is true.
    #[inline(always)]
    pub fn pred(&self, p: Pred) -> u32 {
        self.preds[p.0 as usize]
    }

    /// The lanes in which a predicate operand is true.
    #[inline(always)]
    pub fn pred_in(&self, p: PredIn) -> u32 {
        self.pred(p.pred) ^ if p.negated { !0 } else { 0 }
    }

    /// Writes the lanes of `mask`.
    #[inline(always)]
    pub fn put_pred(&mut self, p: Pred, mask: u32, value: u32) {
        let old = &mut self.preds[p.0 as usize];
        *old = *old & !mask | value & mask;
    }
}
