//! The kernels that were launched last: when one of them fails, which shows later, the error names them.

use super::queue::Queue;
use std::{ptr, sync::Arc};

/// So many are kept.
const KEPT: usize = 8;

/// Names of launched kernels and graphs.
#[derive(Default)]
pub(super) struct Recent {
    /// So many were launched.
    launched: u64,
    /// Each with its number and its queue's address; the launch of number n at place n mod [`KEPT`].
    names: [Option<(u64, usize, Arc<str>)>; KEPT],
}

impl Recent {
    /// A launch.
    pub fn add(&mut self, queue: &Queue, name: &Arc<str>) {
        self.names[self.launched as usize % KEPT] = Some((self.launched, ptr::from_ref(queue).addr(), name.clone()));
        self.launched += 1;
    }

    /// So many were launched so far.
    pub fn launched(&self) -> u64 {
        self.launched
    }

    /// The first `launched` launches have ended well, as far as they are `queue`'s.
    pub fn forget(&mut self, queue: &Queue, launched: u64) {
        for name in &mut self.names {
            name.take_if(|(number, of, _)| *number < launched && *of == ptr::from_ref(queue).addr());
        }
    }

    /// Each once, the latest first.
    pub fn names(&self) -> Vec<String> {
        let mut kept: Vec<_> = self.names.iter().flatten().collect();
        kept.sort_by_key(|(number, ..)| std::cmp::Reverse(*number));
        let mut names: Vec<String> = vec![];
        for (.., name) in kept {
            if !names.iter().any(|n| **n == **name) {
                names.push(name.to_string());
            }
        }
        names
    }
}
