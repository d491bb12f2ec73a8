//! What the metrics say about the cache.

use serde::{Deserialize, Serialize};

/// Where the blocks are. `used + cached + unused` is all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvUsage {
    /// Held by a sequence.
    pub used: usize,
    /// Held by nobody; the content is kept, and can be found until the room is needed.
    pub cached: usize,
    /// Held by nobody, with nothing worth keeping.
    pub unused: usize,
}

impl KvUsage {
    /// All blocks.
    pub fn total(&self) -> usize {
        self.used + self.cached + self.unused
    }

    /// Blocks that can be had now.
    pub fn free(&self) -> usize {
        self.cached + self.unused
    }

    /// Share of the blocks that sequences hold, from 0 to 1 (`vllm:kv_cache_usage_perc`).
    pub fn perc(&self) -> f64 {
        self.used as f64 / self.total().max(1) as f64
    }
}

/// How much of what was asked for was there. In tokens; a sequence counts once, when it first starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixCacheStats {
    /// Tokens of prompts that were looked up (`vllm:prefix_cache_queries`).
    pub queries: u64,
    /// Of those, tokens that did not have to be computed (`vllm:prefix_cache_hits`).
    pub hits: u64,
}
