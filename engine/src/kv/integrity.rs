//! The pool's books against those of the holders.

use std::collections::HashSet;
use std::fmt;

use super::pool::{BlockPool, BlockRef};

/// Books that do not agree: a bug. Each line is one disagreement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntegrityError(Vec<String>);

impl IntegrityError {
    /// Notes a disagreement, unless what must hold does.
    pub fn check(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.0.push(otherwise());
        }
    }

    /// Adds the disagreements of a part.
    pub fn include(&mut self, part: Result<(), IntegrityError>) {
        self.0.extend(part.err().into_iter().flat_map(|e| e.0));
    }

    /// Fine if nothing was noted.
    pub fn finish(self) -> Result<(), IntegrityError> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for IntegrityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for IntegrityError {}

impl BlockPool {
    /// Checks that every block is accounted for, given the block tables of all who hold any: each block is held or free;
    /// it has as many references as there are tables with it; names and blocks belong together; the list of free blocks
    /// is whole.
    pub fn check_integrity<'a>(&self, tables: impl IntoIterator<Item = &'a [BlockRef]>) -> Result<(), IntegrityError> {
        let mut e = IntegrityError::default();
        let mut holders = vec![0; self.blocks.len()];
        for table in tables {
            for &block in table {
                e.check(self.is_current(block), || format!("{block:?} is held, but its room was handed out again"));
                if let Some(n) = holders.get_mut(block.id as usize) {
                    *n += 1;
                }
            }
        }
        for (id, (b, &holders)) in self.blocks.iter().zip(&holders).enumerate() {
            let refs = b.ref_count;
            e.check(refs == holders, || format!("block {id} has {refs} references and {holders} holders"));
            e.check((refs == 0) == self.free.contains(id as u32), || {
                format!("block {id} has {refs} references; in the list of free blocks: {}", refs != 0)
            });
            e.check(b.hash.is_none_or(|hash| self.index.get(&hash) == Some(&(id as u32))), || {
                format!("block {id} is not found under its name")
            });
        }
        let named = self.blocks.iter().filter(|b| b.hash.is_some()).count();
        e.check(named == self.index.len(), || {
            format!("{named} blocks have names, {} names are known", self.index.len())
        });

        let listed: Vec<u32> = self.free.iter().take(self.blocks.len() + 1).collect();
        let distinct = listed.iter().collect::<HashSet<_>>().len();
        e.check(listed.len() == self.free.len() && distinct == listed.len(), || {
            format!("the list of {} free blocks has {} entries, {distinct} distinct", self.free.len(), listed.len())
        });
        let cached = listed.iter().filter(|&&id| self.blocks[id as usize].hash.is_some()).count();
        e.check(cached == self.num_cached, || {
            format!("{cached} free blocks are cached, counted were {}", self.num_cached)
        });
        let usage = self.usage();
        e.check(usage.total() == self.blocks.len(), || format!("{usage:?} of {} blocks", self.blocks.len()));
        e.finish()
    }
}
