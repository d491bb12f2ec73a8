//! One sequence: its tokens, and how far it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::config::SchedulerConfig;
use super::output::{FinishReason, Finished};
use super::plan::{Input, Row};
use super::queue::Rank;
use super::request::{NewRequest, SequenceId};
use crate::kv::{BlockHash, BlockRef};

/// A sequence in the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sequence {
    pub(super) id: SequenceId,
    pub(super) rank: Rank,
    pub(super) num_prompt_tokens: usize,
    /// Tokens at which it ends.
    pub(super) max_len: usize,
    min_tokens: usize,
    stop_token_ids: Arc<[u32]>,
    pub(super) skip_reading_prefix_cache: bool,
    /// Starts once the first sample of its request, which has this rank, has computed the prompt.
    pub(super) follows: Option<Rank>,
    /// The prompt and what was sampled, as far as known. Shared with other samples of the request until one is sampled.
    pub(super) tokens: Arc<Vec<u32>>,
    root: BlockHash,
    /// Names of the full blocks of `tokens`; shared likewise.
    pub(super) hashes: Arc<Vec<BlockHash>>,
    /// Found in the cache at the first start.
    pub(super) num_cached_tokens: Option<usize>,
    pub(super) num_preemptions: u32,
    /// Waiting until nobody is about to compute this block.
    pub(super) deferred: Option<BlockHash>,
    /// As long as it waits, nothing.
    pub(super) run: Run,
}

/// How far a running sequence is. A preempted one starts anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    /// The number of this run.
    pub(super) generation: u64,
    /// Tokens in the cache once all steps planned so far are complete.
    pub(super) num_computed_tokens: usize,
    /// Tokens in the cache by steps that are complete.
    pub(super) num_completed_tokens: usize,
    /// Tokens that steps in flight sample: they count, and are not known.
    pub(super) num_placeholders: usize,
    /// The step and row that samples the last of them.
    pub(super) sampled_by: Option<(u64, usize)>,
    /// The block table.
    pub(super) blocks: Vec<BlockRef>,
    /// Of those, blocks at the beginning that were shared or committed: complete, never written again.
    pub(super) num_committed_blocks: usize,
    /// The cache was reset during the run: what it computed belongs to the time before.
    pub(super) outdated: bool,
}

impl Sequence {
    /// One sample of a request.
    pub(super) fn new(id: SequenceId, rank: Rank, request: &NewRequest, config: &SchedulerConfig) -> Sequence {
        let mut sequence = Sequence {
            id,
            rank,
            num_prompt_tokens: request.prompt.len(),
            max_len: request.max_len(config),
            min_tokens: request.min_tokens,
            stop_token_ids: request.stop_token_ids.as_slice().into(),
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            follows: None,
            tokens: Arc::new(request.prompt.to_vec()),
            root: request.key.root(),
            hashes: Arc::default(),
            num_cached_tokens: None,
            num_preemptions: 0,
            deferred: None,
            run: Run::default(),
        };
        sequence.extend_hashes(config);
        sequence
    }

    /// Another sample of the same request. The prompt is not copied, nor hashed again. Where the whole prompt has to be
    /// computed, the first sample's doing so is enough.
    pub(super) fn sibling(&self, id: SequenceId, rank: Rank) -> Sequence {
        let follows = self.skip_reading_prefix_cache.then_some(self.rank);
        Sequence { id, rank, follows, skip_reading_prefix_cache: false, ..self.clone() }
    }

    /// Whether a running sequence has not computed its prompt yet.
    pub(super) fn is_prefilling(&self) -> bool {
        self.run.num_completed_tokens < self.num_prompt_tokens
    }

    /// Tokens, known or about to be.
    pub(super) fn num_tokens(&self) -> usize {
        self.tokens.len() + self.run.num_placeholders
    }

    pub(super) fn num_output_tokens(&self) -> usize {
        self.tokens.len() - self.num_prompt_tokens
    }

    /// Tokens that a step could compute now. A sequence's very last token is never computed: nothing follows it.
    pub(super) fn num_new_tokens(&self) -> usize {
        self.num_tokens().min(self.max_len - 1).saturating_sub(self.run.num_computed_tokens)
    }

    /// Tokens that it needs room for to start. More than it has: one that must be preempted as soon as it samples, or that
    /// was preempted with tokens in flight, would come and go.
    pub(super) fn num_tokens_ahead(&self, config: &SchedulerConfig) -> usize {
        (self.num_tokens() + config.max_concurrent_batches).min(self.max_len - 1)
    }

    /// The names of blocks that it may find in the cache: the last token is always computed, for its logits.
    pub(super) fn findable(&self, config: &SchedulerConfig) -> &[BlockHash] {
        if !config.enable_prefix_caching || self.skip_reading_prefix_cache {
            return &[];
        }
        &self.hashes[..(self.tokens.len() - 1) / config.block_size]
    }

    /// A row of the next `n` tokens, which then count as computed. The block table must have room for them.
    pub(super) fn advance(&mut self, n: usize, step: u64, row: usize, config: &SchedulerConfig) -> Row {
        let (start, end, size) = (self.run.num_computed_tokens, self.run.num_computed_tokens + n, config.block_size);
        let input = match self.run.sampled_by {
            Some((step, row)) if start >= self.tokens.len() => Input::SampledBy { step, row },
            _ => Input::Tokens(self.tokens[start..end].to_vec()),
        };
        let blocks = &self.run.blocks[..config.blocks_for(end)];
        let slot = |position: usize| blocks[position / size].id * size as u32 + (position % size) as u32;
        let samples = end == self.num_tokens();
        let planned = Row {
            id: self.id,
            generation: self.run.generation,
            start,
            input,
            block_table: blocks.iter().map(|block| block.id).collect(),
            slot_mapping: (start..end).map(slot).collect(),
            writes: blocks[start / size..].to_vec(),
            samples,
        };
        self.run.num_computed_tokens = end;
        if samples {
            self.run.num_placeholders += 1;
            self.run.sampled_by = Some((step, row));
        }
        planned
    }

    /// The token that the oldest placeholder stood for, and whether the sequence ends with it.
    pub(super) fn accept(&mut self, token: u32, config: &SchedulerConfig) -> Option<FinishReason> {
        self.run.num_placeholders -= 1;
        Arc::make_mut(&mut self.tokens).push(token);
        self.extend_hashes(config);
        if self.num_output_tokens() >= self.min_tokens && self.stop_token_ids.contains(&token) {
            Some(FinishReason::Stop)
        } else if self.tokens.len() >= self.max_len {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    /// How it ended.
    pub(super) fn finished(&self, reason: FinishReason) -> Finished {
        Finished {
            id: self.id,
            reason,
            num_prompt_tokens: self.num_prompt_tokens,
            num_output_tokens: self.num_output_tokens(),
            num_cached_tokens: self.num_cached_tokens.unwrap_or(0),
            num_preemptions: self.num_preemptions,
        }
    }

    fn extend_hashes(&mut self, config: &SchedulerConfig) {
        let known = self.hashes.len();
        if !config.enable_prefix_caching || self.tokens.len() / config.block_size == known {
            return;
        }
        let hashes = Arc::make_mut(&mut self.hashes);
        for block in self.tokens.chunks_exact(config.block_size).skip(known) {
            let next = hashes.last().unwrap_or(&self.root).chain(block);
            hashes.push(next);
        }
    }
}
