//! Who holds which block of the KV cache: bookkeeping alone, no device memory.
//!
//! A *block* is room for the keys and values of a fixed number of consecutive tokens of one sequence. A sequence's
//! blocks, in order, are its *block table*. [`BlockPool`] hands blocks out, counts who holds them and, when nobody does,
//! keeps those whose content is known by a [`BlockHash`] for whoever starts with the same tokens, until their room is
//! needed, least recently used first.
//!
//! A hash says everything a block's content depends on: the model, the adapter, the cache salt ([`CacheKey`]), all tokens
//! before the block, and its own.
//!
//! ```
//! use tegula_engine::kv::{BlockPool, CacheKey, Commit};
//!
//! let mut pool = BlockPool::new(8);
//! let root = CacheKey::model("smollm2").root();
//! let hash = root.chain(&[1, 2, 3, 4]);
//!
//! let blocks = pool.allocate(1).expect("8 are free");
//! assert_eq!(pool.commit(blocks[0], hash), Commit::Indexed); // its four tokens were computed
//! pool.release(blocks[0]);
//!
//! let found = pool.lookup(&hash).expect("nobody needed its room");
//! pool.share(found);
//! assert_eq!(pool.usage().used, 1);
//! ```

mod hash;
mod integrity;
mod lru;
mod pool;
mod stats;
#[cfg(test)]
mod tests;

pub use hash::{Adapter, BlockHash, CacheKey, NotAHash};
pub use integrity::IntegrityError;
pub use pool::{BlockPool, BlockRef, Commit};
pub use stats::{KvUsage, PrefixCacheStats};
