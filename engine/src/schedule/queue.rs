//! Sequences in the order in which they are served.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::sequence::Sequence;

/// A sequence's place among all: smaller is better, and no two are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Rank {
    pub(super) priority: i32,
    pub(super) arrival: u64,
}

/// Sequences by rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Sequence>", into = "Vec<Sequence>")]
pub(super) struct Queue(BTreeMap<Rank, Sequence>);

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn insert(&mut self, sequence: Sequence) {
        self.0.insert(sequence.rank, sequence);
    }

    pub(super) fn remove(&mut self, rank: Rank) -> Option<Sequence> {
        self.0.remove(&rank)
    }

    pub(super) fn get(&self, rank: Rank) -> Option<&Sequence> {
        self.0.get(&rank)
    }

    pub(super) fn get_mut(&mut self, rank: Rank) -> Option<&mut Sequence> {
        self.0.get_mut(&rank)
    }

    /// Best first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.0.values()
    }

    /// Best first.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sequence> {
        self.0.values_mut()
    }

    /// Best first.
    pub(super) fn ranks(&self) -> Vec<Rank> {
        self.0.keys().copied().collect()
    }

    /// The best of those worse than `rank`, or of all.
    pub(super) fn after(&self, rank: Option<Rank>) -> Option<Rank> {
        let above = rank.map_or(Bound::Unbounded, Bound::Excluded);
        self.0.range((above, Bound::Unbounded)).next().map(|(&rank, _)| rank)
    }
}

impl From<Vec<Sequence>> for Queue {
    fn from(sequences: Vec<Sequence>) -> Queue {
        Queue(sequences.into_iter().map(|s| (s.rank, s)).collect())
    }
}

impl From<Queue> for Vec<Sequence> {
    fn from(queue: Queue) -> Vec<Sequence> {
        queue.0.into_values().collect()
    }
}
