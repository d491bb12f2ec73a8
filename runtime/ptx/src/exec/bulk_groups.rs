//! Bulk copies out of shared memory: a thread's groups, which it commits and waits for.
//!
//! With [`Completion::Early`] everything happens at issue. With [`Completion::Late`] the source is read when the thread
//! waits for reading (`.read`) and the destination written when it waits for all, or ends.

use super::{async_copy::Completion, tile::Job};

/// One copy.
struct Copy {
    lane: u8,
    job: Job,
    /// Bytes of the source, when they have been read.
    staged: Option<Vec<u8>>,
}

impl Copy {
    /// The source in shared memory: host address and length.
    fn source(&self) -> (*const u8, usize) {
        match &self.job {
            Job::Copy { from, bytes, .. } | Job::Fold { from, bytes, .. } => (*from, *bytes),
            Job::Value { value, bytes, .. } => (value.as_ptr(), *bytes),
            Job::Load(t) | Job::Store(t) | Job::FoldTile(t, _) => {
                let bytes = t.map.tile_bytes().next_multiple_of(t.map.swizzle.span());
                (t.shared.wrapping_add(t.address as usize), bytes)
            }
        }
    }

    /// Keeps what the source holds now.
    fn read(&mut self) {
        if self.staged.is_none() {
            let (from, bytes) = self.source();
            // SAFETY: the source was located (for a tile, rounded up to the swizzle's span) when the copy was issued.
            self.staged = Some(unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec());
        }
    }

    /// Writes what was read.
    fn write(mut self) {
        self.read();
        let Some(staged) = &self.staged else { return };
        let staged = staged.as_ptr();
        match &mut self.job {
            Job::Copy { from, .. } | Job::Fold { from, .. } => *from = staged,
            Job::Value { .. } => {}
            // The swizzle looks at addresses, which stay; only the host's place of them is another.
            Job::Load(t) | Job::Store(t) | Job::FoldTile(t, _) => {
                t.shared = staged.cast_mut().wrapping_sub(t.address as usize);
            }
        }
        // SAFETY: the staged bytes stand for the source; the destination was located at issue.
        unsafe { self.job.perform() };
    }
}

/// The copies of one warp that are under way.
#[derive(Default)]
pub struct BulkGroups {
    open: Vec<Copy>,
    /// Oldest first: the lanes that committed, and their copies.
    groups: Vec<(u32, Vec<Copy>)>,
}

impl BulkGroups {
    /// Issues a lane's copy.
    pub fn issue(&mut self, lane: u8, job: Job, completion: Completion) {
        match completion {
            // SAFETY: the instruction located both ends.
            Completion::Early => unsafe { job.perform() },
            Completion::Late => self.open.push(Copy { lane, job, staged: None }),
        }
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
        // With early completion the groups are empty, but nobody waits for an old one either.
        while self.groups.len() > 1 && self.groups[0].1.is_empty() {
            self.groups.remove(0);
        }
    }

    /// Completes all groups of the lanes of `mask` but their latest `pending`; `read` only reads their sources.
    pub fn wait(&mut self, mask: u32, pending: u32, read: bool) {
        for lane in (0..32).filter(|l| mask >> l & 1 == 1) {
            let mut newer = 0;
            let mut due = Vec::new();
            for (i, (lanes, _)) in self.groups.iter().enumerate().rev() {
                if lanes >> lane & 1 == 1 {
                    if newer >= pending {
                        due.push(i);
                    }
                    newer += 1;
                }
            }
            for i in due.into_iter().rev() {
                let (lanes, copies) = &mut self.groups[i];
                if read {
                    copies.iter_mut().filter(|c| c.lane == lane).for_each(Copy::read);
                    continue;
                }
                *lanes &= !(1 << lane);
                let (mine, rest) = copies.drain(..).partition(|c| c.lane == lane);
                *copies = rest;
                Vec::into_iter(mine).for_each(Copy::write);
            }
        }
        self.groups.retain(|(lanes, _)| *lanes != 0);
    }

    /// Completes everything of the lanes of `mask`, committed or not: they end.
    pub fn finish(&mut self, mask: u32) {
        if self.open.is_empty() && self.groups.is_empty() {
            return;
        }
        self.wait(mask, 0, false);
        let (mine, rest) = self.open.drain(..).partition(|c| mask >> c.lane & 1 == 1);
        self.open = rest;
        Vec::into_iter(mine).for_each(Copy::write);
    }
}
