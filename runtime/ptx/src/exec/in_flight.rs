//! Copies that an mbarrier says are done: bulk copies into shared memory, and cp.async tied to a barrier.
//!
//! With [`Completion::Early`] the bytes move and the barrier hears of it when the copy is issued; with
//! [`Completion::Late`] when somebody waits for that barrier in vain, which is the last moment. In strict mode the
//! destination counts as pending until a wait has seen the phase complete.

use super::{
    async_copy::{Completion, Copy},
    mbarrier::{Mbarrier, Mbarriers},
    tile::Job,
};
use crate::mem::access::WRITTEN;

/// A barrier: the block's rank and its shared address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Rank of the block in the cluster.
    pub rank: u8,
    /// Shared address, without the block's number.
    pub address: u32,
}

/// What arrives.
pub enum Effect {
    /// A bulk copy of so many bytes.
    Bytes {
        /// The copy.
        job: Box<Job>,
        /// For the barrier's count.
        bytes: u32,
        /// Shadow of the destination, or null, and its length.
        shadow: (*mut u8, usize),
    },
    /// cp.async copies of one thread, after which it arrives.
    Copies(Vec<Copy>),
}

// SAFETY: records of addresses of memory that stays while a launch runs.
unsafe impl Send for Effect {}

/// One copy.
pub struct InFlight {
    /// The barrier that it completes on.
    pub key: Key,
    /// Who issued it: rank, warp, lane.
    pub from: (u8, u8, u8),
    /// What it does.
    pub effect: Effect,
    /// The barrier's phase when it was issued.
    phase: u64,
    performed: bool,
    completion: Completion,
}

/// All of a cluster's.
#[derive(Default)]
pub struct Transit {
    list: Vec<InFlight>,
}

impl InFlight {
    /// Moves the bytes and tells the barrier.
    fn perform(&mut self, barrier: Option<&mut Mbarrier>) -> Result<(), String> {
        self.performed = true;
        match &self.effect {
            Effect::Bytes { job, bytes, .. } => {
                // SAFETY: the instruction that issued it located both ends.
                unsafe { job.perform() };
                barrier.map_or(Ok(()), |b| b.complete_bytes(*bytes))
            }
            Effect::Copies(copies) => {
                if self.completion == Completion::Late {
                    copies.iter().for_each(Copy::perform);
                }
                barrier.map_or(Ok(()), |b| b.arrive(1, false).map(|_| ()))
            }
        }
    }

    /// A wait has seen it: the destination may be read.
    fn observe(&self) {
        match &self.effect {
            Effect::Bytes { shadow: (shadow, bytes), .. } if !shadow.is_null() => {
                // SAFETY: the shadow is as long as the destination that was located.
                unsafe { std::ptr::write_bytes(*shadow, WRITTEN, *bytes) };
            }
            Effect::Bytes { .. } => {}
            Effect::Copies(copies) => copies.iter().for_each(Copy::settle),
        }
    }
}

impl Transit {
    /// Issues a copy that completes on `barrier`, whose key is `key`.
    pub fn issue(
        &mut self,
        key: Key,
        from: (u8, u8, u8),
        effect: Effect,
        barrier: &mut Mbarrier,
        completion: Completion,
    ) -> Result<(), String> {
        let mut copy = InFlight { key, from, effect, phase: barrier.phase, performed: false, completion };
        if completion == Completion::Early {
            copy.perform(Some(barrier))?;
        }
        self.list.push(copy);
        Ok(())
    }

    /// Copies that were performed but not waited for, and all.
    pub fn counts(&self) -> (usize, usize) {
        (self.list.iter().filter(|c| c.performed).count(), self.list.len())
    }

    /// Whether `phase` of a barrier is over; a wait in vain completes the copies that were put off. None when there is no
    /// barrier.
    pub fn over(&mut self, key: Key, phase: u64, barriers: &mut Mbarriers) -> Option<bool> {
        let barrier = barriers.get(key.address)?;
        for copy in self.list.iter_mut().filter(|c| c.key == key && !c.performed) {
            if barrier.phase > phase {
                break;
            }
            // What goes wrong here (bytes beyond all limits) leaves the phase open, so that the wait reports it.
            let _ = copy.perform(Some(barrier));
        }
        let now = barrier.phase;
        if now > phase {
            self.list.retain(|c| {
                let seen = c.key == key && c.performed && c.phase < now;
                if seen {
                    c.observe();
                }
                !seen
            });
        }
        Some(now > phase)
    }

    /// Completes the cp.async copies that a thread has tied to barriers (it waits for them in another way, too).
    pub fn finish_copies(&mut self, rank: u8, warp: u8, mask: u32, barriers: &mut [super::cta::Cta]) {
        if self.list.is_empty() {
            return;
        }
        self.list.retain_mut(|c| {
            let mine = (c.from.0, c.from.1) == (rank, warp) && mask >> c.from.2 & 1 == 1;
            if !mine || !matches!(c.effect, Effect::Copies(_)) {
                return true;
            }
            if !c.performed {
                let barrier = barriers.get_mut(c.key.rank as usize).and_then(|cta| cta.mbarriers.get(c.key.address));
                let _ = c.perform(barrier);
            }
            c.observe();
            false
        });
    }
}
