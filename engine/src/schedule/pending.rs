//! Blocks of known tokens that a running sequence is about to compute.
//!
//! Whoever begins with the same tokens waits for them instead of computing them too. This is how the samples of one
//! request come to share its prompt, and how a burst of requests with one system prompt computes it once.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::request::SequenceId;
use crate::kv::BlockHash;

/// Who computes which block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pending(HashMap<BlockHash, SequenceId>);

impl Pending {
    pub(super) fn contains(&self, hash: &BlockHash) -> bool {
        self.0.contains_key(hash)
    }

    /// Says that a sequence will compute these, unless another does already.
    pub(super) fn claim(&mut self, id: SequenceId, hashes: &[BlockHash]) {
        for &hash in hashes {
            self.0.entry(hash).or_insert(id);
        }
    }

    /// Says that a sequence computed these, or will not.
    pub(super) fn release(&mut self, id: SequenceId, hashes: &[BlockHash]) {
        for hash in hashes {
            if self.0.get(hash) == Some(&id) {
                self.0.remove(hash);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// In no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BlockHash, &SequenceId)> {
        self.0.iter()
    }
}
