//! The free blocks in the order in which they are taken: a doubly linked list inside a table, every operation O(1).

use serde::{Deserialize, Serialize};

/// No block.
const NONE: u32 = u32::MAX;

/// A list of block ids, each at most once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FreeList {
    /// Neighbours of each block in the list; of no meaning for the others.
    links: Vec<Link>,
    first: u32,
    last: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Link {
    listed: bool,
    prev: u32,
    next: u32,
}

impl FreeList {
    /// All of `0..blocks`, ascending.
    pub(super) fn new(blocks: u32) -> FreeList {
        let absent = Link { listed: false, prev: NONE, next: NONE };
        let mut list = FreeList { links: vec![absent; blocks as usize], first: NONE, last: NONE, len: 0 };
        (0..blocks).for_each(|block| list.push_last(block));
        list
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, block: u32) -> bool {
        self.links[block as usize].listed
    }

    /// Adds a block that is to be taken before all others. It must not be in the list.
    pub(super) fn push_first(&mut self, block: u32) {
        self.insert(block, NONE, self.first);
    }

    /// Adds a block that is to be taken after all others. It must not be in the list.
    pub(super) fn push_last(&mut self, block: u32) {
        self.insert(block, self.last, NONE);
    }

    /// Takes the first.
    pub(super) fn pop_first(&mut self) -> Option<u32> {
        let first = self.first;
        self.remove(first).then_some(first)
    }

    /// Takes a block out; false if it is not in the list.
    pub(super) fn remove(&mut self, block: u32) -> bool {
        let Some(&Link { listed: true, prev, next }) = self.links.get(block as usize) else { return false };
        *self.next_of(prev) = next;
        *self.prev_of(next) = prev;
        self.links[block as usize].listed = false;
        self.len -= 1;
        true
    }

    /// From the first to the last.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let following = |block: u32| (block != NONE).then_some(block);
        std::iter::successors(following(self.first), move |&block| following(self.links[block as usize].next))
    }

    fn insert(&mut self, block: u32, prev: u32, next: u32) {
        debug_assert!(!self.contains(block), "block {block} is free already");
        self.links[block as usize] = Link { listed: true, prev, next };
        *self.next_of(prev) = block;
        *self.prev_of(next) = block;
        self.len += 1;
    }

    /// Where it is written what follows `block`, or what is first.
    fn next_of(&mut self, block: u32) -> &mut u32 {
        self.links.get_mut(block as usize).map_or(&mut self.first, |link| &mut link.next)
    }

    /// Where it is written what precedes `block`, or what is last.
    fn prev_of(&mut self, block: u32) -> &mut u32 {
        self.links.get_mut(block as usize).map_or(&mut self.last, |link| &mut link.prev)
    }
}
