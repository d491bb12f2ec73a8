//! Arguments as the words that kernels take: see [`tegula_ir::abi`].

use crate::memory::Buffer;
use std::{mem::MaybeUninit, sync::Arc};
use tegula_lang::launch::{ArgData, MAX_PARAMS, MAX_RANK};

const MOST: usize = MAX_PARAMS * (1 + 2 * MAX_RANK);

/// The words of a launch: on the stack for any launch of the language, which limits parameters and axes.
pub(super) struct Words {
    stack: [MaybeUninit<u64>; MOST],
    len: usize,
    /// Instead of `stack`, for kernels given as IR, which may have more parameters.
    heap: Vec<u64>,
}

impl Words {
    pub fn new(args: &[ArgData<'_>]) -> Words {
        let mut words = Words { stack: [MaybeUninit::uninit(); MOST], len: 0, heap: Vec::new() };
        for arg in args {
            match arg {
                ArgData::View(v) => {
                    let rank = v.rank as usize;
                    words.push(v.ptr.expose_provenance() as u64);
                    v.extents[..rank].iter().chain(&v.strides[..rank]).for_each(|n| words.push(*n as u64));
                    if v.mutable
                        && let Some(buffer) = v.owner.and_then(|o| o.downcast_ref::<Arc<Buffer>>())
                    {
                        buffer.set_written(true);
                    }
                }
                ArgData::Scalar { bits, .. } => words.push(*bits),
                ArgData::Packed(p) => {
                    [p.ptr.expose_provenance() as u64, p.k as u64, p.n as u64].into_iter().for_each(|w| words.push(w));
                }
            }
        }
        words
    }

    fn push(&mut self, word: u64) {
        if self.heap.is_empty() && self.len < MOST {
            self.stack[self.len].write(word);
            self.len += 1;
            return;
        }
        if self.heap.is_empty() {
            // SAFETY: all MOST were written before `len` reached MOST.
            self.heap.extend(self.stack.iter().map(|w| unsafe { w.assume_init() }));
        }
        self.heap.push(word);
    }

    pub fn as_ptr(&self) -> *const u64 {
        if self.heap.is_empty() { self.stack.as_ptr().cast() } else { self.heap.as_ptr() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tegula_ir::Elem;

    #[test]
    fn words_keep_their_order_on_the_stack_and_beyond_it() {
        for n in [0, 1, MOST - 1, MOST, MOST + 1, 3 * MOST] {
            let args: Vec<_> = (0..n).map(|i| ArgData::Scalar { elem: Elem::U64, bits: 7 * i as u64 + 1 }).collect();
            let words = Words::new(&args);
            for i in 0..n {
                // SAFETY: there are n words.
                assert_eq!(unsafe { *words.as_ptr().add(i) }, 7 * i as u64 + 1, "{i} of {n}");
            }
        }
    }
}
