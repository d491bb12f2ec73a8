//! The sanitizer's memory of memory: what was written, and by whom.
//!
//! Every byte of every view has a record of the last plain writer, the last atomic one and the last readers. Programs of a
//! grid run in any order, so a write meets another program's access only if an atomic orders them: a program that
//! acquires an element which another released knows what that one did before.

use super::error::{Access, Fault};
use crate::attr::MemOrder;
use std::collections::HashMap;

/// Who touched a byte, and how many releases that program had made. Program numbers start at 1; 0 is nobody.
#[derive(Clone, Copy, Default)]
struct Stamp {
    program: u32,
    epoch: u32,
}

#[derive(Clone, Copy, Default)]
struct Byte {
    /// Something wrote it, before the run or in it.
    written: bool,
    writer: Stamp,
    atomic: Stamp,
    /// The last reader, and the last one before it that was another program.
    readers: [Stamp; 2],
}

/// Releases known of each program: one more than the epoch of the last that is visible.
type Clock = HashMap<u32, u32>;

pub(super) struct Shadow {
    /// Disjoint memory ranges in ascending order.
    ranges: Vec<(usize, Vec<Byte>)>,
    now: Stamp,
    known: Clock,
    released: HashMap<usize, Clock>,
}

/// A fault in a view that is not named yet.
#[derive(Debug)]
pub(super) enum Found {
    Unwritten,
    Race { access: Access, earlier: Access, other: u64 },
}

impl Found {
    pub fn of(self, name: &str) -> Fault {
        let name = name.to_string();
        match self {
            Found::Unwritten => Fault::Unwritten(name),
            Found::Race { access, earlier, other } => Fault::Race { name, access, earlier, other },
        }
    }
}

impl Shadow {
    /// Watches memory ranges given as (start, length in bytes, holds nothing yet). They may overlap; where one of them
    /// holds something, it does.
    pub fn new(mut views: Vec<(usize, usize, bool)>) -> Shadow {
        views.retain(|v| v.1 > 0);
        views.sort();
        let mut ranges: Vec<(usize, Vec<Byte>)> = vec![];
        for &(start, len, _) in &views {
            match ranges.last_mut() {
                Some((s, bytes)) if start <= *s + bytes.len() => {
                    let end = (start + len - *s).max(bytes.len());
                    bytes.resize(end, Byte::default());
                }
                _ => ranges.push((start, vec![Byte::default(); len])),
            }
        }
        let mut s = Shadow { ranges, now: Stamp::default(), known: Clock::new(), released: HashMap::new() };
        for (start, len, unwritten) in views {
            if !unwritten && let Some(bytes) = s.bytes(start, len) {
                bytes.iter_mut().for_each(|b| b.written = true);
            }
        }
        s
    }

    /// The next accesses are this program's.
    pub fn begin(&mut self, program: u64) {
        self.now = Stamp { program: program as u32 + 1, epoch: 0 };
        self.known.clear();
    }

    fn bytes(&mut self, at: usize, len: usize) -> Option<&mut [Byte]> {
        let i = self.ranges.partition_point(|r| r.0 <= at).checked_sub(1)?;
        let (start, bytes) = &mut self.ranges[i];
        bytes.get_mut(at - *start..at - *start + len)
    }

    pub fn touch(&mut self, at: usize, len: usize, access: Access) -> Result<(), Found> {
        let now = self.now;
        // Taken out so that it can be asked while the bytes are borrowed.
        let known = std::mem::take(&mut self.known);
        let ordered = |s: Stamp| {
            s.program == 0 || s.program == now.program || known.get(&s.program).is_some_and(|&n| s.epoch < n)
        };
        let result = self
            .bytes(at, len)
            .map_or(Ok(()), |bytes| bytes.iter_mut().try_for_each(|b| b.touch(access, now, ordered)));
        self.known = known;
        result
    }

    /// The memory order of an atomic at `at`, after its access was recorded.
    pub fn synchronise(&mut self, at: usize, order: MemOrder) {
        if matches!(order, MemOrder::Acquire | MemOrder::AcqRel)
            && let Some(clock) = self.released.get(&at)
        {
            merge(&mut self.known, clock);
        }
        if matches!(order, MemOrder::Release | MemOrder::AcqRel) {
            self.known.insert(self.now.program, self.now.epoch + 1);
            merge(self.released.entry(at).or_default(), &self.known);
            self.now.epoch += 1;
        }
    }
}

fn merge(into: &mut Clock, from: &Clock) {
    for (&program, &n) in from {
        let known = into.entry(program).or_insert(0);
        *known = n.max(*known);
    }
}

impl Byte {
    fn touch(&mut self, access: Access, now: Stamp, ordered: impl Fn(Stamp) -> bool) -> Result<(), Found> {
        if access != Access::Write && !self.written {
            return Err(Found::Unwritten);
        }
        let race = |earlier, s: Stamp| {
            if ordered(s) { Ok(()) } else { Err(Found::Race { access, earlier, other: s.program as u64 - 1 }) }
        };
        race(Access::Write, self.writer)?;
        if access != Access::Atomic {
            race(Access::Atomic, self.atomic)?;
        }
        if access != Access::Read {
            race(Access::Read, self.readers[0])?;
            race(Access::Read, self.readers[1])?;
        }
        match access {
            Access::Read if self.readers[0].program != now.program => self.readers = [now, self.readers[0]],
            Access::Read => self.readers[0] = now,
            Access::Write => self.writer = now,
            Access::Atomic => self.atomic = now,
        }
        self.written = true;
        Ok(())
    }
}
