//! How a launch's programs are cut into chunks, and how large chunks are worth their price.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The work of a launch that one thread had better do alone: a second one costs about as much as it brings.
const ALONE: u64 = 1_000_000;
/// The work of a chunk, at least: so long that claiming it costs little beside it.
const CHUNK: u64 = 1_000_000;
/// Chunks for each thread, at most.
const MOST: u64 = 12;

/// How long a program of some kernel takes, learnt from launch to launch.
///
/// It decides only into how many chunks a launch is cut, never what is computed: a wrong one costs time.
#[derive(Debug, Default)]
pub struct Pace {
    /// Picoseconds for one program; 0 when not known yet.
    program: AtomicU64,
}

impl Pace {
    /// Picoseconds for so many programs; `None` when not known yet.
    fn expect(&self, programs: u64) -> Option<u64> {
        match self.program.load(Relaxed) {
            0 => None,
            one => Some(one.saturating_mul(programs)),
        }
    }

    /// Takes into account that so many programs took so long. More than expected counts at once, less only slowly: too
    /// many chunks cost little, too few may leave threads without work.
    pub(super) fn learn(&self, programs: u64, took: Duration) {
        let one = (picoseconds(took) / programs.max(1)).max(1);
        let before = self.program.load(Relaxed);
        let now = if one >= before { one } else { before - (before - one).div_ceil(4) };
        if now != before {
            self.program.store(now, Relaxed);
        }
    }

    /// Takes into account that so many programs took at least so long: what one thread saw pass while several did them.
    pub(super) fn learn_at_least(&self, programs: u64, took: Duration) {
        if self.expect(programs).is_none_or(|known| known < picoseconds(took)) {
            self.learn(programs, took);
        }
    }
}

fn picoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1000)
}

/// Whether work that takes so long is left to one thread.
pub(super) fn too_short_to_share(time: Duration) -> bool {
    picoseconds(time) < ALONE
}

/// A range cut into `coarse` chunks over three quarters of it, then `fine` smaller ones, so that no thread waits long
/// for the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    total: u64,
    coarse: u32,
    fine: u32,
}

impl Cut {
    /// For a launch that is shared from its start: as many chunks as their price allows.
    pub fn shared(total: u64, threads: usize, pace: &Pace) -> Cut {
        let threads = threads.clamp(1, 1 << 20) as u64;
        if threads == 1 {
            return Cut::equal(total, 1);
        }
        let most = MOST * threads;
        let chunks = match pace.expect(total) {
            None => most,
            // As many for each thread, where there are enough: an odd one would be waited for.
            Some(time) if time / CHUNK >= threads => (time / CHUNK / threads * threads).min(most),
            Some(time) => (time / CHUNK).max(2),
        };
        // A third of the chunks are coarse, if each thread gets as many.
        let coarse = chunks / 3 / threads * threads;
        if coarse == 0 || total <= chunks {
            return Cut::equal(total, chunks);
        }
        let last = total - total / 4 * 3;
        Cut { total, coarse: coarse as u32, fine: (chunks - coarse).min(last) as u32 }
    }

    /// For a launch that one thread begins alone, since it is expected to be short; it looks at the clock after the first
    /// chunk, and shares the others if it was mistaken. `None` if that is not expected.
    pub fn alone(total: u64, pace: &Pace) -> Option<Cut> {
        pace.expect(total).filter(|time| *time < ALONE).map(|_| Cut::equal(total, 8))
    }

    fn equal(total: u64, chunks: u64) -> Cut {
        Cut { total, coarse: 0, fine: chunks.min(total) as u32 }
    }

    pub fn chunks(self) -> u32 {
        self.coarse + self.fine
    }

    /// The `i`-th chunk.
    pub fn range(self, i: u32) -> Range<u64> {
        let middle = if self.coarse == 0 { 0 } else { self.total / 4 * 3 };
        let (from, to, parts, i) = if i < self.coarse {
            (0, middle, self.coarse, i)
        } else {
            (middle, self.total, self.fine, i - self.coarse)
        };
        let (parts, i) = (parts as u64, i as u64);
        let at = |i: u64| from + (to - from) / parts * i + ((to - from) % parts).min(i);
        at(i)..at(i + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A pace of so many picoseconds a program; unknown for 0.
    fn pace(program: u64) -> Pace {
        Pace { program: AtomicU64::new(program) }
    }

    fn covers_in_order(cut: Cut, total: u64) -> Result<(), TestCaseError> {
        let (mut next, mut longest) = (0, u64::MAX);
        for i in 0..cut.chunks() {
            let r = cut.range(i);
            prop_assert_eq!(r.start, next);
            prop_assert!(r.end > r.start);
            // Neighbours of one size class differ by at most one.
            prop_assert!(r.end - r.start <= longest.saturating_add(1));
            longest = longest.min(r.end - r.start);
            next = r.end;
        }
        prop_assert_eq!(next, total);
        Ok(())
    }

    proptest! {
        #[test]
        fn chunks_cover_the_range_in_order_and_shrink(
            total in prop_oneof![1u64..2000, 1..=u64::MAX >> 1],
            threads in 1usize..70,
            program in prop_oneof![Just(0), 1u64..100, 1u64..10_000_000, any::<u64>()],
        ) {
            let pace = pace(program);
            let cut = Cut::shared(total, threads, &pace);
            covers_in_order(cut, total)?;
            // A second thread gets something, and nobody more than can be worth its price.
            prop_assert!(threads == 1 || total == 1 || cut.chunks() > 1);
            prop_assert!(cut.chunks() as usize <= 12 * threads);
            let worth = program.saturating_mul(total) / CHUNK;
            prop_assert!(program == 0 || cut.chunks() <= 2 || u64::from(cut.chunks()) <= worth);
            if let Some(alone) = Cut::alone(total, &pace) {
                covers_in_order(alone, total)?;
            }
        }
    }

    #[test]
    fn a_launch_is_cut_by_the_work_that_it_is_expected_to_be() {
        let chunks = |total, threads, program| Cut::shared(total, threads, &pace(program)).chunks();
        // 64 programs of 50 ns, of 150 ns, of 1 µs, of 1 ms, of nobody knows what.
        assert_eq!([50_000, 150_000, 1_000_000, 1_000_000_000, 0].map(|p| chunks(64, 2, p)), [2, 8, 24, 24, 24]);
        // Not more threads than there is work for; not more chunks than programs.
        assert_eq!(chunks(1000, 64, 5_000), 5);
        assert_eq!(chunks(3, 2, 1_000_000_000), 3);
        // Of 8 chunks for two threads a quarter is coarse.
        let cut = Cut::shared(64, 2, &pace(150_000));
        let lengths: Vec<u64> = (0..8).map(|i| cut.range(i)).map(|r| r.end - r.start).collect();
        assert_eq!(lengths, [24, 24, 3, 3, 3, 3, 2, 2]);
    }

    #[test]
    fn only_what_is_known_to_be_short_is_begun_alone() {
        let alone = |program| Cut::alone(64, &pace(program)).map(Cut::chunks);
        assert_eq!([0, 1, 15_000, 16_000, u64::MAX].map(alone), [None, Some(8), Some(8), None, None]);
        assert!(too_short_to_share(Duration::from_nanos(999)) && !too_short_to_share(Duration::from_nanos(1000)));
    }

    #[test]
    fn a_pace_rises_at_once_and_falls_slowly() {
        let pace = Pace::default();
        assert_eq!(pace.expect(7), None);
        pace.learn(10, Duration::from_nanos(400));
        assert_eq!(pace.expect(7), Some(7 * 40_000));
        pace.learn(1, Duration::from_nanos(100));
        assert_eq!(pace.expect(1), Some(100_000));
        pace.learn(1, Duration::from_nanos(20));
        assert_eq!(pace.expect(1), Some(80_000));
        // It gets there, and a program that takes no time at all is known to take some.
        (0..100).for_each(|_| pace.learn(1000, Duration::ZERO));
        assert_eq!(pace.expect(64), Some(64));
        // What is only known to be no less lowers nothing.
        pace.learn_at_least(10, Duration::from_nanos(400));
        pace.learn_at_least(10, Duration::from_nanos(300));
        assert_eq!(pace.expect(7), Some(7 * 40_000));
        pace.learn(1, Duration::MAX);
        assert_eq!(pace.expect(u64::MAX), Some(u64::MAX));
    }
}
