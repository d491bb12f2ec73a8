//! The shared memory of one block.

use super::{SHARED_BASE, access::Region};

/// A block's shared memory: static variables first, dynamic memory behind them.
pub struct Shared {
    data: Box<[u128]>,
    /// One byte per byte, 1 where something was written; empty when not tracked.
    shadow: Box<[u128]>,
    len: usize,
}

impl Shared {
    /// `len` bytes, uninitialised when `tracked`.
    pub fn new(len: usize, tracked: bool) -> Shared {
        let words = len.div_ceil(16) + 1;
        let shadow = if tracked { vec![0u128; words] } else { Vec::new() };
        Shared { data: vec![0u128; words].into(), shadow: shadow.into(), len }
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: integers are bytes; `len` of them at most.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), self.len) }
    }

    /// Forgets the contents, for the next block.
    pub fn reset(&mut self) {
        self.data.fill(0);
        self.shadow.fill(0);
    }

    /// As the access path sees it; addresses start at [`SHARED_BASE`].
    #[inline(always)]
    pub fn region(&mut self) -> Region {
        let shadow = if self.shadow.is_empty() { std::ptr::null_mut() } else { self.shadow.as_mut_ptr().cast() };
        Region {
            base: self.data.as_mut_ptr().cast(),
            shadow,
            start: SHARED_BASE,
            end: SHARED_BASE + self.len as u64,
            lane_stride: 0,
            read_only: false,
        }
    }
}
