//! The pool: blocks handed out, shared, kept and reused.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::hash::BlockHash;
use super::lru::FreeList;
use super::stats::KvUsage;

/// A block as somebody got it. Once its room went to somebody else, the same id has another generation, and what was
/// meant for the old content is recognised as stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockRef {
    /// Index in the device's cache.
    pub id: u32,
    /// How often the room was handed out for new content.
    pub generation: u64,
}

/// What became of a block whose content was to be made known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Others can find it now.
    Indexed,
    /// Others find another block of the same content; this one stays its holder's own.
    Duplicate,
    /// The room is somebody else's by now, or nobody's. Nothing happened.
    Stale,
}

/// What is known of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Block {
    /// Sequences that hold it.
    pub(super) ref_count: u32,
    pub(super) generation: u64,
    /// The name that it is indexed under.
    pub(super) hash: Option<BlockHash>,
}

/// The blocks of a cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockPool {
    pub(super) blocks: Vec<Block>,
    /// Blocks that nobody holds, the next to be reused first.
    pub(super) free: FreeList,
    /// Where known contents are, held or free.
    pub(super) index: HashMap<BlockHash, u32>,
    /// Free blocks with a name.
    pub(super) num_cached: usize,
}

impl BlockPool {
    /// A pool of `num_blocks` unused blocks.
    pub fn new(num_blocks: u32) -> BlockPool {
        BlockPool {
            blocks: vec![Block::default(); num_blocks as usize],
            free: FreeList::new(num_blocks),
            index: HashMap::new(),
            num_cached: 0,
        }
    }

    /// All blocks.
    pub fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that can be had now, cached contents included.
    pub fn num_free(&self) -> usize {
        self.free.len()
    }

    /// Where the blocks are.
    pub fn usage(&self) -> KvUsage {
        let (free, cached) = (self.free.len(), self.num_cached);
        KvUsage { used: self.blocks.len() - free, cached, unused: free - cached }
    }

    /// Whether the reference is to what the block is used for now.
    pub fn is_current(&self, block: BlockRef) -> bool {
        self.blocks.get(block.id as usize).is_some_and(|b| b.generation == block.generation)
    }

    /// Sequences that hold the block; 0 if the reference is stale.
    pub fn ref_count(&self, block: BlockRef) -> u32 {
        if self.is_current(block) { self.blocks[block.id as usize].ref_count } else { 0 }
    }

    /// The block of a known content. To keep it, [`BlockPool::share`] it before anything is allocated.
    pub fn lookup(&self, hash: &BlockHash) -> Option<BlockRef> {
        let &id = self.index.get(hash)?;
        Some(BlockRef { id, generation: self.blocks[id as usize].generation })
    }

    /// Becomes one more holder of a block that was looked up. False, with nothing done, if the reference is stale.
    pub fn share(&mut self, block: BlockRef) -> bool {
        if !self.is_current(block) {
            return false;
        }
        let b = &mut self.blocks[block.id as usize];
        b.ref_count += 1;
        if self.free.remove(block.id) && b.hash.is_some() {
            self.num_cached -= 1;
        }
        true
    }

    /// Takes `n` blocks for new content, with one holder each; `None`, with nothing taken, if fewer are free. Contents
    /// that were in them are forgotten.
    pub fn allocate(&mut self, n: usize) -> Option<Vec<BlockRef>> {
        if n > self.free.len() {
            return None;
        }
        (0..n).map(|_| self.take_first()).collect()
    }

    fn take_first(&mut self) -> Option<BlockRef> {
        let id = self.free.pop_first()?;
        let b = &mut self.blocks[id as usize];
        b.generation += 1;
        b.ref_count = 1;
        if let Some(hash) = b.hash.take() {
            self.index.remove(&hash);
            self.num_cached -= 1;
        }
        Some(BlockRef { id, generation: b.generation })
    }

    /// Makes the content of a held block known under its name. Only for blocks all of whose tokens were computed.
    pub fn commit(&mut self, block: BlockRef, hash: BlockHash) -> Commit {
        if self.ref_count(block) == 0 {
            return Commit::Stale;
        }
        let b = &mut self.blocks[block.id as usize];
        if b.hash.is_some() || self.index.contains_key(&hash) {
            return Commit::Duplicate;
        }
        b.hash = Some(hash);
        self.index.insert(hash, block.id);
        Commit::Indexed
    }

    /// Stops holding a block. Without holders it is free: one with a name is kept as long as possible, one without is
    /// reused first. Release a sequence's blocks last to first, so that its beginning is kept longest. False, with
    /// nothing done, if the reference is stale or nobody held the block.
    pub fn release(&mut self, block: BlockRef) -> bool {
        if self.ref_count(block) == 0 {
            return false;
        }
        let b = &mut self.blocks[block.id as usize];
        b.ref_count -= 1;
        if b.ref_count == 0 {
            match b.hash {
                Some(_) => {
                    self.num_cached += 1;
                    self.free.push_last(block.id);
                }
                None => self.free.push_first(block.id),
            }
        }
        true
    }

    /// Forgets all known contents. Blocks that are held stay held, and are not found any more.
    pub fn reset_prefix_cache(&mut self) {
        self.index.clear();
        self.num_cached = 0;
        self.blocks.iter_mut().for_each(|b| b.hash = None);
    }
}
