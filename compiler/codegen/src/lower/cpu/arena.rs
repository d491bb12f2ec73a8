//! Scratch memory: one block a thread, of a size known when the kernel is compiled. Buffers get places in it when they
//! are made and give them back after their last use, so that tiles of different times share memory.

use tegula_ir::abi::SCRATCH_ALIGN;

/// Places in use, and the most that ever were.
#[derive(Debug, Default)]
pub struct Arena {
    /// (start, end) of places in use, by start.
    used: Vec<(usize, usize)>,
    high: usize,
}

impl Arena {
    /// A place of `bytes` bytes: its offset, aligned to a cache line. First fit.
    pub fn alloc(&mut self, bytes: usize) -> usize {
        let bytes = bytes.max(1).next_multiple_of(SCRATCH_ALIGN);
        let mut at = 0;
        let mut slot = self.used.len();
        for (i, (start, end)) in self.used.iter().enumerate() {
            if start - at >= bytes {
                slot = i;
                break;
            }
            at = *end;
        }
        self.used.insert(slot, (at, at + bytes));
        self.high = self.high.max(at + bytes);
        at
    }

    /// Gives the place at `offset` back.
    pub fn free(&mut self, offset: usize) {
        self.used.retain(|(start, _)| *start != offset);
    }

    /// Bytes that a thread must give.
    pub fn size(&self) -> usize {
        self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_in_use_never_overlap(steps in prop::collection::vec((any::<bool>(), 0usize..500), 1..60)) {
            let (mut arena, mut live) = (Arena::default(), Vec::<(usize, usize)>::new());
            for (allocate, n) in steps {
                if allocate || live.is_empty() {
                    let at = arena.alloc(n);
                    prop_assert_eq!(at % SCRATCH_ALIGN, 0);
                    prop_assert!(at + n <= arena.size());
                    prop_assert!(live.iter().all(|(a, m)| at + n.max(1) <= *a || a + (*m).max(1) <= at));
                    live.push((at, n));
                } else {
                    arena.free(live.swap_remove(n % live.len()).0);
                }
            }
        }
    }

    #[test]
    fn freed_memory_is_used_again() {
        let mut a = Arena::default();
        let first = a.alloc(1000);
        a.alloc(10);
        a.free(first);
        assert_eq!(a.alloc(900), first);
        assert_eq!(a.size(), 1088);
    }
}
