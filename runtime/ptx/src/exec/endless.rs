//! Endless loops that can be proven: a cluster whose whole state comes back, with nothing from outside in between, goes
//! round for ever. Most often somebody polls a barrier that nobody will complete.
//!
//! The state is where the lanes are, registers, local and shared memory and all barriers, as a 64-bit hash. What comes from
//! outside is global memory and the clock: [`Cluster::outside`] says whether either was looked at. States are compared
//! with one that was kept after 1, 2, 4, 8, ... rounds of turns (Brent's method), so that cycles of any length are found.

use super::{cta::Cluster, warp::Warp};
use std::hash::{DefaultHasher, Hasher};

/// The search for a state that comes back.
#[derive(Debug, Default)]
pub struct Search {
    kept: Option<u64>,
    /// Looks since the state was kept, and until the next is.
    since: u64,
    until: u64,
}

impl Search {
    /// Looks at a cluster between two rounds. True when it is in a state that it was in before and nothing of outside was
    /// seen since.
    pub fn again(&mut self, cluster: &mut Cluster, warps: &[Vec<Warp>]) -> bool {
        if std::mem::take(&mut cluster.outside) {
            *self = Search::default();
            return false;
        }
        let mut hash = DefaultHasher::new();
        cluster.digest(&mut hash);
        warps.iter().flatten().for_each(|w| w.digest(&mut hash));
        let state = hash.finish();
        if self.kept == Some(state) {
            return true;
        }
        self.since += 1;
        if self.kept.is_none() || self.since > self.until {
            (self.kept, self.since, self.until) = (Some(state), 0, 2 * self.until.max(1));
        }
        false
    }
}

/// Hashes words.
pub fn words(hash: &mut impl Hasher, words: &[u32]) {
    // SAFETY: integers are bytes.
    hash.write(unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) });
}
