//! cp.async: copies that are complete only when their group has been waited for.
//!
//! A warp keeps its copies in groups until a wait completes them. With [`Completion::Early`] the bytes move when the copy
//! is issued, with [`Completion::Late`] when it is waited for: both are legal, so a correct kernel gives the same result.
//! In strict mode the destination counts as pending in between, and reading it is a fault.

use crate::mem::access::WRITTEN;
use std::ptr;

/// When asynchronous results arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// As soon as they may.
    Early,
    /// As late as they may.
    Late,
}

/// One lane's copy.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// Executing lane.
    pub lane: u8,
    /// Host address of the destination.
    pub to: *mut u8,
    /// Host address of the destination's shadow, or null.
    pub shadow: *mut u8,
    /// Host address of the source.
    pub from: *const u8,
    /// Bytes of the destination.
    pub bytes: usize,
    /// Bytes read from the source; the rest is filled with zeros.
    pub source_bytes: usize,
}

// SAFETY: a record of addresses; `perform` states when they may be used.
unsafe impl Send for Copy {}

impl Copy {
    /// Moves the bytes.
    pub fn perform(&self) {
        // SAFETY: both ends were located (bounds, write permission) when the copy was issued, and neither global nor
        // shared memory moves while the launch runs.
        unsafe {
            ptr::copy(self.from, self.to, self.source_bytes);
            ptr::write_bytes(self.to.add(self.source_bytes), 0, self.bytes - self.source_bytes);
        }
    }

    fn complete(&self, completion: Completion) {
        if completion == Completion::Late {
            self.perform();
        }
        self.settle();
    }

    /// The destination may be read from now on.
    pub fn settle(&self) {
        if !self.shadow.is_null() {
            // SAFETY: the shadow is as long as the destination, see `perform`.
            unsafe { ptr::write_bytes(self.shadow, WRITTEN, self.bytes) };
        }
    }
}

/// The copies of one warp that are under way.
#[derive(Debug, Default)]
pub struct AsyncCopies {
    /// Issued, not committed.
    open: Vec<Copy>,
    /// Committed, oldest first: the lanes that committed and their copies.
    groups: Vec<(u32, Vec<Copy>)>,
}

impl AsyncCopies {
    /// Issues a copy.
    pub fn issue(&mut self, copy: Copy, completion: Completion) {
        if completion == Completion::Early {
            copy.perform();
        }
        self.open.push(copy);
    }

    /// Copies and groups that nothing has waited for.
    pub fn pending(&self) -> usize {
        self.open.len() + self.groups.len()
    }

    /// Makes a group of what the lanes of `mask` issued since their last commit.
    pub fn commit(&mut self, mask: u32) {
        let (group, rest) = self.open.drain(..).partition(|c| mask >> c.lane & 1 == 1);
        self.open = rest;
        self.groups.push((mask, group));
        self.tidy();
    }

    /// Completes all groups of the lanes of `mask` but their latest `pending`.
    pub fn wait(&mut self, mask: u32, pending: u32, completion: Completion) {
        let mut newer = [0u32; 32];
        let mut due = vec![0u32; self.groups.len()];
        for (i, (lanes, _)) in self.groups.iter().enumerate().rev() {
            for lane in (0..32).filter(|l| lanes & mask >> l & 1 == 1) {
                if newer[lane] >= pending {
                    due[i] |= 1 << lane;
                }
                newer[lane] += 1;
            }
        }
        // Oldest first: a later copy to the same place wins.
        for ((lanes, copies), due) in self.groups.iter_mut().zip(due) {
            copies.retain(|c| {
                let over = due >> c.lane & 1 == 1;
                if over {
                    c.complete(completion);
                }
                !over
            });
            *lanes &= !due;
        }
        self.tidy();
    }

    /// Completes everything the lanes of `mask` issued, committed or not (`wait_all`, the end of a thread).
    pub fn finish(&mut self, mask: u32, completion: Completion) {
        if self.open.is_empty() && self.groups.is_empty() {
            return;
        }
        self.wait(mask, 0, completion);
        self.open.retain(|c| {
            let mine = mask >> c.lane & 1 == 1;
            if mine {
                c.complete(completion);
            }
            !mine
        });
    }

    /// Takes a lane's copies out, committed or not, oldest first.
    pub fn take(&mut self, lane: u8) -> Vec<Copy> {
        let mut out = Vec::new();
        for list in self.groups.iter_mut().map(|(_, copies)| copies).chain([&mut self.open]) {
            let (mine, rest) = list.drain(..).partition(|c| c.lane == lane);
            *list = rest;
            out.extend::<Vec<Copy>>(mine);
        }
        out
    }

    fn tidy(&mut self) {
        self.groups.retain(|(lanes, _)| *lanes != 0);
    }
}
