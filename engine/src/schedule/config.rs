//! The scheduler's limits, named as in vLLM.

use serde::{Deserialize, Serialize};

/// Limits of the scheduler and of the cache it fills.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerConfig {
    /// Tokens in a block.
    pub block_size: usize,
    /// Blocks in the cache.
    pub num_blocks: u32,
    /// Most tokens of a sequence, prompt and answer together.
    pub max_model_len: usize,
    /// Most sequences that run at once.
    pub max_num_seqs: usize,
    /// Most tokens of a step.
    pub max_num_batched_tokens: usize,
    /// Most tokens of one sequence in a step; 0 for no such limit. Long prompts are then computed beside others.
    pub long_prefill_token_threshold: usize,
    /// Blocks that stay free when a sequence starts beside others, for those to grow into.
    pub watermark_blocks: usize,
    /// Whether sequences find what others computed.
    pub enable_prefix_caching: bool,
    /// Steps planned and not yet complete: 1 plans a step once the one before is complete, 2 while it runs.
    pub max_concurrent_batches: usize,
}

impl SchedulerConfig {
    /// The defaults, for a cache of so many blocks and sequences of so many tokens.
    pub fn new(num_blocks: u32, max_model_len: usize) -> SchedulerConfig {
        SchedulerConfig {
            block_size: 64,
            num_blocks,
            max_model_len,
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            long_prefill_token_threshold: 0,
            watermark_blocks: num_blocks as usize / 100,
            enable_prefix_caching: true,
            max_concurrent_batches: 2,
        }
    }

    /// Checks the bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let at_least = |name: &'static str, found: usize, least: usize| {
            if found >= least { Ok(()) } else { Err(ConfigError::TooSmall { name, found, least }) }
        };
        at_least("block_size", self.block_size, 1)?;
        at_least("num_blocks", self.num_blocks as usize, 1)?;
        at_least("max_model_len", self.max_model_len, 2)?;
        at_least("max_num_seqs", self.max_num_seqs, 1)?;
        at_least("max_num_batched_tokens", self.max_num_batched_tokens, 1)?;
        at_least("max_concurrent_batches", self.max_concurrent_batches, 1)?;
        match (self.num_blocks as usize).checked_mul(self.block_size) {
            Some(slots) if slots <= i32::MAX as usize => Ok(()),
            _ => Err(ConfigError::TooManySlots { num_blocks: self.num_blocks, block_size: self.block_size }),
        }
    }

    /// Blocks that `tokens` tokens need.
    pub fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.block_size)
    }

    /// Tokens that the cache has room for.
    pub fn capacity(&self) -> usize {
        self.num_blocks as usize * self.block_size
    }

    /// Tokens at which a sequence ends at the latest. A sequence's last token is never computed, so it needs no room:
    /// alone, every sequence fits.
    pub fn max_len(&self) -> usize {
        self.max_model_len.min(self.capacity() + 1)
    }
}

/// Limits that make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A limit below what any work needs.
    #[error("{name} is {found}; it must be at least {least}")]
    TooSmall { name: &'static str, found: usize, least: usize },
    /// A cache whose slots kernels cannot number.
    #[error("{num_blocks} blocks of {block_size} tokens; a cache has at most 2,147,483,647 slots")]
    TooManySlots { num_blocks: u32, block_size: usize },
}
